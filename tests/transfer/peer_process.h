// SPDX-License-Identifier: Apache-2.0
//
// An mc_transfer_peer process and the commands to it.
// Threads: the test's thread.
// Owns: the process; the destructor ends the process.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace mc::transfer::testing {

class PeerProcess {
 public:
  explicit PeerProcess(std::uint64_t size_bytes, std::uint32_t rights = 3,
                       const std::string& listen = "127.0.0.1:0", const std::string& key_file = "");
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t address() const { return address_; }
  // Returns the answer without the newline; "" if the process is gone.
  std::string tell(const std::string& command);
  void send(int signal) const;  // returns after the stop for SIGSTOP
  void kill();

 private:
  std::string read_line();
  int pid_ = -1;
  int to_ = -1;
  std::FILE* from_ = nullptr;
  std::string name_;
  std::uint64_t address_ = 0;
};

}  // namespace mc::transfer::testing
