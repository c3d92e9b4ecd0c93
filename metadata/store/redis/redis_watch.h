// SPDX-License-Identifier: Apache-2.0
//
// The loop of one watch in Redis. The loop asks the script for changes, delivers the
//   changes, and sleeps in XREAD BLOCK until the log grows or a lease may end. The log's position
//   survives reconnects.
// Threads: run() is the body of a WatchLoop.
// Owns: the connection.
// Trusts: as redis_answer.h.
#pragma once

#include <memory>
#include <string>

#include "metadata/store/redis/locator.h"
#include "metadata/store/watch_loop.h"

namespace mc::metadata {

class RedisWatch {
 public:
  RedisWatch(std::shared_ptr<RedisLocator> locator, std::string base, std::string prefix,
             Revision position, WatchCallback callback)
      : locator_(std::move(locator)),
        base_(std::move(base)),
        prefix_(std::move(prefix)),
        position_(position),
        callback_(std::move(callback)) {}

  void run(const StopSignal& stop);

 private:
  // Returns after an error or a stop.
  Status follow(RedisConnection& connection, const StopSignal& stop, Backoff& backoff);

  const std::shared_ptr<RedisLocator> locator_;
  const std::string base_;
  const std::string prefix_;
  Revision position_;
  const WatchCallback callback_;
};

}  // namespace mc::metadata
