// SPDX-License-Identifier: Apache-2.0
//
// A client of Mooncake's HTTP metadata server: GET, PUT and DELETE of <url>?key=<key>.
//   The protocol has only values: no revisions, compare-and-set, leases or lists. So this store can
//   share descriptors but cannot elect a leader.
// Threads: any.
// Owns: the HTTP connections.
// Trusts: as cluster_store.h says.
#pragma once

#include <string>

#include "metadata/store/cluster_store.h"
#include "metadata/store/http/http_client.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

class HttpStore final : public ClusterStore {
 public:
  // REQUIRES: url of kind kHttp, check_cluster_id(cluster_id).
  HttpStore(const StoreUrl& url, std::string_view cluster_id);

  Capabilities capabilities() const override { return {}; }
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
  Result<HttpAnswer> call(std::string method, std::string_view key, std::string_view body,
                          std::uint64_t deadline_ns);
  Status lacks(std::string_view what) const;

  const std::string name_;
  const std::string url_;            // up to the key
  const Result<std::string> token_;  // of the server; empty: none
  HttpClient client_;
};

}  // namespace mc::metadata
