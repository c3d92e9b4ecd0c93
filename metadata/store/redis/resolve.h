// SPDX-License-Identifier: Apache-2.0
//
// Name resolution with a deadline. getaddrinfo() has no deadline, so a thread resolves
//   a name (but not an address). The thread outlives a caller that gave up.
// Threads: any.
// Owns: at most kMaxResolverThreads threads at once, shared by the callers of one Resolver.
// Trusts: the system's resolver.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "metadata/store/cluster_store.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

class Resolver {
 public:
  Resolver();
  // Errors: kStoreUnavailable.
  Result<std::vector<Address>> resolve(const Endpoint& endpoint, std::uint64_t deadline_ns);

 private:
  static constexpr int kMaxResolverThreads = 4;
  struct Count;
  std::shared_ptr<Count> running_;
};

}  // namespace mc::metadata
