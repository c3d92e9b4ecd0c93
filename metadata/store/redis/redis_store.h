// SPDX-License-Identifier: Apache-2.0
//
// The cluster store in Redis 5 or later: one server, a replica set with one writable
//   server, or the server that sentinels name. Every call is a run of the script of
//   redis_script.h. Redis may lose acknowledged writes in a failover, because the replication is
//   asynchronous. Even then revisions never repeat.
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
  Status remove(std::string_view key, std::uint64_t deadline_ns) override;
  Result<std::vector<Entry>> list(std::string_view prefix, std::uint64_t deadline_ns) override;
  Result<Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) override;
  Status keep_alive(LeaseId lease, std::uint64_t deadline_ns) override;
  Status revoke(LeaseId lease, std::uint64_t deadline_ns) override;

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
