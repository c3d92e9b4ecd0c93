// SPDX-License-Identifier: Apache-2.0
//
// The commands of the peer that use a pool (main.cc). Each answers with the name of a status.
#pragma once

#include <optional>
#include <sstream>
#include <string>

#include "mc/mc.h"

namespace mc::device::testing {

class PoolUser {
 public:
  PoolUser() = default;
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;
  ~PoolUser() { mc_close(client_); }

  // Nothing: the command is no command of these.
  std::optional<std::string> answer(const std::string& line);

 private:
  mc_status put_by_threads(const std::string& key, mc_slice value);

  mc_client* client_ = nullptr;
};

}  // namespace mc::device::testing
