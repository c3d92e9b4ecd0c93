// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/redis_watch.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/store/redis/redis_answer.h"
#include "metadata/store/redis/redis_store.h"

namespace mc::metadata {
namespace {

constexpr std::uint64_t kAnswerTimeoutNs = 2000000000;
// A lease granted while the watch sleeps may end before the planned wake-up. So the watch wakes
// after this time.
constexpr std::uint32_t kLongestSleepMs = 200;
constexpr std::size_t kMaxChangesBytes = 4u << 20;

}  // namespace

Status RedisWatch::follow(RedisConnection& connection, const StopSignal& stop, Backoff& backoff) {
  const std::string most = std::to_string(kMaxChangesBytes);
  const std::string log = base_ + "log";
  while (!stop.stopped()) {
    const std::string position = std::to_string(position_);
    const auto reply = run_redis_script(connection, base_, {"changes", prefix_, position, most},
                                        now_ns() + kAnswerTimeoutNs);
    if (!reply) return reply.error();
    const auto changes = decode_redis_changes(*reply);
    if (!changes) return changes.error();
    backoff.reset();
    if (changes->lost) {
      callback_({WatchEvent::Kind::kRelist, {"", "", changes->position, kNoLease}});
    }
    for (const WatchEvent& event : changes->events) {
      if (stop.stopped()) return {};
      callback_(event);
    }
    position_ = changes->position;
    if (changes->more) continue;
    const std::string sleep_ms =
        std::to_string(std::clamp<std::uint32_t>(changes->wait_ms, 1, kLongestSleepMs));
    const std::string last = std::to_string(position_) + "-0";
    const auto woken =
        connection.call({"XREAD", "COUNT", "1", "BLOCK", sleep_ms, "STREAMS", log, last},
                        now_ns() + kAnswerTimeoutNs);
    if (!woken) return woken.error();
    if (woken->kind == Reply::Kind::kError) return decode_redis_error(*woken);
  }
  return {};
}

void RedisWatch::run(const StopSignal& stop) {
  Backoff backoff;
  while (!stop.stopped()) {
    auto line = locator_->open(stop.fd(), now_ns() + kAnswerTimeoutNs);
    if (line) {
      const Status status = follow(line->connection, stop, backoff);
      if (!status.ok() && status.code() != MC_CANCELLED) locator_->forsake(line->era);
    }
    // Retry even after lasting errors, because an operator may repair a password or an ACL.
    if (stop.wait_ms(backoff.next_ms())) return;
  }
}

}  // namespace mc::metadata
