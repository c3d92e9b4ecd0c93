// SPDX-License-Identifier: Apache-2.0
//
// The registry of the cluster stores. A new backend is a folder and a line here.
#include "metadata/store/checks.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/etcd/etcd_store.h"
#include "metadata/store/http/http_store.h"
#include "metadata/store/memory/memory_store.h"
#include "metadata/store/redis/redis_store.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

Result<std::unique_ptr<ClusterStore>> open_cluster_store(std::string_view text,
                                                         std::string_view cluster_id) {
  if (Status status = check_cluster_id(cluster_id); !status.ok()) return fail(status);
  const auto url = parse_store_url(text);
  if (!url) return fail(url.error());
  switch (url->kind) {
    case StoreUrl::Kind::kMemory:
      return std::make_unique<MemoryStore>(MemoryStore::make_state(), cluster_id);
    case StoreUrl::Kind::kRedis:
      return RedisStore::create(*url, cluster_id);
    case StoreUrl::Kind::kEtcd:
      return std::make_unique<EtcdStore>(*url, cluster_id);
    case StoreUrl::Kind::kHttp:
      return std::make_unique<HttpStore>(*url, cluster_id);
  }
  return fail(MC_INTERNAL, "a kind of cluster store without a factory");
}

}  // namespace mc::metadata
