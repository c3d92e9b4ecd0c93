// SPDX-License-Identifier: Apache-2.0
//
// Connections to the Redis server that takes writes now. That server is the only named
//   server, the writable one of several named servers, or the server that the sentinels name. Idle
//   connections wait here for calls.
// Threads: any.
// Owns: idle connections and certificates.
// Trusts: sentinels to name a server. Only the server's own answers show whether it takes writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/store/redis/connection.h"

namespace mc::metadata {

class RedisLocator {
 public:
  static Result<std::unique_ptr<RedisLocator>> create(const StoreUrl& url);

  struct Line {
    RedisConnection connection;
    std::uint64_t era = 0;  // a line of an earlier era leads to a server that has failed
  };
  // An idle line, or a new line.
  Result<Line> take(std::uint64_t deadline_ns);
  void give_back(Line line);
  // The line's server is away or takes no writes. Later calls use another server.
  void forsake(std::uint64_t era);

 private:
  explicit RedisLocator(const StoreUrl& url) : url_(url) {}
  RedisConnection::Target target(const Endpoint& endpoint) const;
  Result<Line> open(std::uint64_t deadline_ns);
  Result<Endpoint> ask_sentinels(std::uint64_t deadline_ns);

  const StoreUrl url_;
  std::optional<StreamTls> tls_;
  Resolver resolver_;
  Mutex mutex_;
  std::vector<Line> idle_ MC_GUARDED_BY(mutex_);
  std::uint64_t era_ MC_GUARDED_BY(mutex_) = 0;
  std::size_t preferred_ MC_GUARDED_BY(mutex_) =
      0;  // index of the endpoint to try if there are no sentinels
};

}  // namespace mc::metadata
