// SPDX-License-Identifier: Apache-2.0
//
// The cluster store in Redis 5 or later: one server, a replica set with one writable
//   server, or the server that sentinels name. Each call of the contract is one atomic run of a Lua
//   script. Redis may lose acknowledged writes in a failover, because the replication is
//   asynchronous. Even then revisions never repeat. The script keeps these keys below KEYS[1],
//   "mc/<cluster id>/":
//
//     meta            hash     revision, lease (last granted)
//     keys            zset     every key, for listing by prefix
//     entry/<key>     hash     v value, r revision, l lease (0: none)
//     leases          zset     lease → end, in µs of the server's clock
//     ttl             hash     lease → ms
//     lease/<id>      set      its keys
//
// Revisions and lease ids count on, but never fall below the server's clock in µs. So no number is
// given twice after a restart without data, or after a failover that lost the last writes.
// Threads: any. Each call in flight uses a separate connection.
// Owns: the connections.
// Trusts: as cluster_store.h says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "metadata/store/cluster_store.h"
#include "metadata/store/redis/locator.h"

namespace mc::metadata {

class RedisStore final : public ClusterStore {
 public:
  // REQUIRES: url of kind kRedis, check_cluster_id(cluster_id).
  static Result<std::unique_ptr<ClusterStore>> create(const StoreUrl& url,
                                                      std::string_view cluster_id);

  Capabilities capabilities() const override { return {true, true, true, true}; }
  std::string name() const override { return name_; }
  Result<Entry> get(std::string_view key, std::uint64_t deadline_ns) override;
  Result<Revision> put(std::string_view key, std::string_view value, LeaseId lease,
                       std::uint64_t deadline_ns) override;
  Result<Swap> compare_and_set(std::string_view key, Revision expected, std::string_view value,
                               LeaseId lease, std::uint64_t deadline_ns) override;
  Result<bool> write_guarded(const Guard& guard, std::string_view key,
                             const std::optional<std::string>& value,
                             std::uint64_t deadline_ns) override;
  Status remove(std::string_view key, std::uint64_t deadline_ns) override;
  Result<std::vector<Entry>> list(std::string_view prefix, std::uint64_t deadline_ns) override;
  Result<Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) override;
  Status keep_alive(LeaseId lease, std::uint64_t deadline_ns) override;
  Status revoke(LeaseId lease, std::uint64_t deadline_ns) override;
  Result<std::string> risk_of_loss(std::uint64_t deadline_ns) override;

 private:
  RedisStore(std::string name, std::string base, std::unique_ptr<RedisLocator> locator)
      : name_(std::move(name)), base_(std::move(base)), locator_(std::move(locator)) {}

  enum class Repeatable { kNo, kYes };
  Result<Reply> run(Repeatable repeatable, const std::vector<std::string_view>& arguments,
                    std::uint64_t deadline_ns);
  Result<Swap> write(std::string_view key, std::string_view value, LeaseId lease,
                     std::string_view expected, std::uint64_t deadline_ns);

  const std::string name_;  // names the hosts
  const std::string base_;  // "mc/<cluster id>/"
  const std::unique_ptr<RedisLocator> locator_;
};

}  // namespace mc::metadata
