// SPDX-License-Identifier: Apache-2.0
//
// What it is: connections to the Redis server that takes writes now: the only one named; the one of
//   several named that does; or the one the sentinels name. Idle connections wait here for calls.
// Threads: any. Owns: idle connections, certificates.
// Trusts: sentinels to name a server; whether it takes writes, only its own answers tell.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "metadata/store/redis/connection.h"

namespace mc::metadata {

class RedisLocator {
 public:
  static Result<std::unique_ptr<RedisLocator>> create(const StoreUrl& url);

  struct Line {
    RedisConnection connection;
    std::uint64_t era = 0;  // lines of an earlier era lead to a server that failed us
  };
  // An idle line, or a new one.
  Result<Line> take(std::uint64_t deadline_ns);
  // A new one that interrupt_fd wakes.
  Result<Line> open(int interrupt_fd, std::uint64_t deadline_ns);
  void give_back(Line line);
  // What the line leads to is away or takes no writes: look elsewhere from now on.
  void forsake(std::uint64_t era);

 private:
  explicit RedisLocator(const StoreUrl& url) : url_(url) {}
  RedisConnection::Target target(const Endpoint& endpoint) const;
  Result<Endpoint> ask_sentinels(int interrupt_fd, std::uint64_t deadline_ns);

  const StoreUrl url_;
  std::shared_ptr<TlsContext> tls_;
  Resolver resolver_;
  std::mutex mutex_;  // guards everything below
  std::vector<Line> idle_;
  std::uint64_t era_ = 0;
  std::size_t preferred_ = 0;  // of the endpoints, where no sentinel decides
};

}  // namespace mc::metadata
