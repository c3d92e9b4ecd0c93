// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/locator.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "metadata/store/redis/redis_answer.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxIdleLines = 4;

// Leaves time for the other endpoints if one endpoint does not answer.
std::uint64_t share_of(std::uint64_t deadline_ns, std::size_t parts) {
  const std::uint64_t now = now_ns();
  return deadline_ns <= now ? now : now + (deadline_ns - now) / std::max<std::size_t>(parts, 1);
}

}  // namespace

Result<std::unique_ptr<RedisLocator>> RedisLocator::create(const StoreUrl& url) {
  std::unique_ptr<RedisLocator> locator(new RedisLocator(url));
  if (url.tls.enabled) {
    auto tls = StreamTls::open(url.tls);
    if (!tls) return fail(tls.error());
    locator->tls_ = *std::move(tls);
  }
  return locator;
}

RedisConnection::Target RedisLocator::target(const Endpoint& endpoint) const {
  return {endpoint, url_.login, url_.db, tls_ ? &*tls_ : nullptr};
}

Result<RedisLocator::Line> RedisLocator::take(std::uint64_t deadline_ns) {
  {
    const MutexLock lock(mutex_);
    while (!idle_.empty()) {
      Line line = std::move(idle_.back());
      idle_.pop_back();
      if (line.connection.quiet()) return line;  // otherwise the server has closed the connection
    }
  }
  return open(deadline_ns);
}

void RedisLocator::give_back(Line line) {
  const MutexLock lock(mutex_);
  if (line.era == era_ && idle_.size() < kMaxIdleLines) idle_.push_back(std::move(line));
}

void RedisLocator::forsake(std::uint64_t era) {
  const MutexLock lock(mutex_);
  if (era != era_) return;  // another call was first
  ++era_;
  ++preferred_;
  idle_.clear();
}

Result<Endpoint> RedisLocator::ask_sentinels(std::uint64_t deadline_ns) {
  Status last(kStoreUnavailable, "no sentinel answered");
  std::size_t left = url_.endpoints.size();
  for (const Endpoint& sentinel : url_.endpoints) {
    // one part is left for the master
    const std::uint64_t until_ns = share_of(deadline_ns, left-- + 1);
    const RedisConnection::Target asked{sentinel, url_.sentinel_login, 0, tls_ ? &*tls_ : nullptr};
    auto connection = RedisConnection::open(resolver_, asked, until_ns);
    if (!connection) {
      last = at(sentinel, connection.error());
      continue;
    }
    const auto reply =
        connection->call({"SENTINEL", "get-master-addr-by-name", url_.sentinel_name}, until_ns);
    if (!reply) {
      last = {kStoreUnavailable, text_of(sentinel) + ": " + std::string(reply.error().text())};
      continue;
    }
    auto master = decode_redis_master(*reply);
    if (master) return master;
    last = at(sentinel, master.error());
  }
  return fail(last.code() == MC_NOT_FOUND ? Status(kStoreUnavailable, std::string(last.text()))
                                          : last);
}

Result<RedisLocator::Line> RedisLocator::open(std::uint64_t deadline_ns) {
  std::uint64_t era = 0;
  std::size_t first = 0;
  {
    const MutexLock lock(mutex_);
    era = era_;
    first = preferred_;
  }
  std::vector<Endpoint> candidates = url_.endpoints;
  if (!url_.sentinel_name.empty()) {
    auto master = ask_sentinels(deadline_ns);
    if (!master) return fail(master.error());
    candidates = {*std::move(master)};
  }
  // Try one candidate only. The first use shows whether the server takes writes; if not, forsake()
  // selects the next candidate.
  const Endpoint& endpoint = candidates[first % candidates.size()];
  auto connection =
      RedisConnection::open(resolver_, target(endpoint), share_of(deadline_ns, candidates.size()));
  if (!connection) {
    if (connection.error().code() == kStoreUnavailable) forsake(era);
    return fail(at(endpoint, connection.error()));
  }
  return Line{*std::move(connection), era};
}

}  // namespace mc::metadata
