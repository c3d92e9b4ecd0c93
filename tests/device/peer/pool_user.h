// SPDX-License-Identifier: Apache-2.0
//
// The commands of the peer that use a pool (main.cc). Each answers with the name of a status.
#pragma once

#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "mc/mc.h"

namespace mc::device::testing {

class PoolUser {
 public:
  explicit PoolUser(mc_stream stream) : stream_(stream) {}
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;
  ~PoolUser() {
    mc_cq_destroy(queue_);
    mc_close(client_);
  }

  // Nothing: the command is no command of these.
  std::optional<std::string> answer(const std::string& line);

 private:
  mc_status put_by_threads(const std::string& key, mc_slice value);

  std::string put_batch(const std::string& command, std::istringstream& words);
  std::string await(std::uint64_t milliseconds);
  std::string get_batch(bool in_order, std::istringstream& words);
  mc_status copy_part(const std::string& command, std::istringstream& words);

  const mc_stream stream_;
  mc_client* client_ = nullptr;
  mc_cq* queue_ = nullptr;
  std::map<std::string, mc_reservation*> reservations_;
  std::map<std::string, mc_view> views_;
};

}  // namespace mc::device::testing
