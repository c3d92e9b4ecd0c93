// SPDX-License-Identifier: Apache-2.0
//
// An mc_transfer_peer process and the commands to it.
// Threads: the test's thread.
// Owns: the process; the destructor ends the process.
#pragma once

#include <cstdint>
#include <string>

#include "line_process.h"

namespace mc::transfer::testing {

class PeerProcess : public LineProcess {
 public:
  explicit PeerProcess(std::uint64_t size_bytes, std::uint32_t rights = 3,
                       const std::string& listen = "127.0.0.1:0", const std::string& key_file = "");

  const std::string& name() const { return name_; }
  std::uint64_t address() const { return address_; }

 private:
  std::string name_;
  std::uint64_t address_ = 0;
};

}  // namespace mc::transfer::testing
