// SPDX-License-Identifier: Apache-2.0
//
// A serving host in a separate process, which tests end by SIGKILL: a region with a
//   pattern, behind a transport that needs a link to each peer.
// Threads: a single thread.
// Owns: the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace mc::transport::testing {

class ServingProcess {
 public:
  using Make = std::function<std::unique_ptr<Transport>(Dialer&)>;
  // The region holds pattern(bytes, seed). REQUIRES: this process has no device open.
  ServingProcess(const Make& make, std::size_t bytes, std::uint64_t seed);
  ServingProcess(const ServingProcess&) = delete;
  ServingProcess& operator=(const ServingProcess&) = delete;
  ~ServingProcess() { kill(); }

  void kill();
  std::uint16_t port() const { return port_; }
  // The description of the region; empty: the process could not be started.
  const std::vector<std::byte>& description() const { return description_; }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  std::vector<std::byte> description_;
};

// Makes the links that a transport has asked for, to the given port of this host.
void make_links(Transport& transport, std::vector<DialRequest>& dialed, std::uint16_t port);

}  // namespace mc::transport::testing
