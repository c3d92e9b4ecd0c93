// SPDX-License-Identifier: Apache-2.0
//
// The cluster store in etcd 3.4 or later, through its JSON gateway (/v3/…). Revisions
//   are etcd's revisions. Leases last whole seconds and at least 1.5 election timeouts of the etcd
//   cluster.
// Threads: any.
// Owns: the connections.
// Trusts: as cluster_store.h says.
#pragma once

#include <string>

#include "metadata/store/cluster_store.h"
#include "metadata/store/etcd/etcd_gateway.h"

namespace mc::metadata {

class EtcdStore final : public ClusterStore {
 public:
  // REQUIRES: url of kind kEtcd, check_cluster_id(cluster_id).
  EtcdStore(const StoreUrl& url, std::string_view cluster_id);

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

 private:
  enum class Repeatable { kNo, kYes };
  // Calls and decodes; retries until the deadline if a retry can help.
  template <typename T, typename Decode>
  Result<T> ask(Repeatable repeatable, const char* path, const std::string& body,
                std::uint64_t deadline_ns, Decode decode);
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  const std::string name_;
  const std::string prefix_;  // "mc/<cluster id>/"
  EtcdGateway gateway_;
};

}  // namespace mc::metadata
