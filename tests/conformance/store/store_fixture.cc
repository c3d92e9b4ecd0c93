// SPDX-License-Identifier: Apache-2.0
#include "conformance/store/store_fixture.h"

#include <stdexcept>

#include "libmc/base/clock.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/memory/memory_store.h"
#include "patience.h"

namespace mc::conformance {

std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  switch (info.param) {
    case Backend::kMemory:
      return "Memory";
    case Backend::kRedis:
      return "Redis";
    case Backend::kEtcd:
      return "Etcd";
    case Backend::kHttp:
      return "Http";
  }
  return "";
}

std::uint64_t soon() { return now_ns() + kWatchdogNs; }
std::uint64_t at_once() { return now_ns() + kSecondNs / 4; }

std::unique_ptr<metadata::ClusterStore> open_store(const std::string& url,
                                                   const std::string& cluster) {
  auto store = metadata::open_cluster_store(url, cluster);
  if (!store) throw std::runtime_error(store.error().to_string());
  return *std::move(store);
}

mc_status code_of_put(const std::string& url, std::uint64_t deadline_ns) {
  const auto put = open_store(url)->put("a", "1", metadata::kNoLease, deadline_ns);
  if (put) return MC_OK;
  EXPECT_EQ(put.error().text().find("hunter2"), std::string::npos) << put.error().text();
  return put.error().code();
}

ClusterStoreTest::ClusterStoreTest() {
  switch (GetParam()) {
    case Backend::kMemory:
      memory_ = metadata::MemoryStore::make_state();
      break;
    case Backend::kRedis:
      server_ = std::make_unique<StoreServer>(redis_command());
      break;
    case Backend::kEtcd:
      server_ = std::make_unique<StoreServer>(etcd_command());
      break;
    case Backend::kHttp:
      server_ = std::make_unique<StoreServer>(metadata_command());
      break;
  }
}

std::unique_ptr<metadata::ClusterStore> ClusterStoreTest::open(const std::string& cluster) {
  switch (GetParam()) {
    case Backend::kMemory:
      return std::make_unique<metadata::MemoryStore>(memory_, cluster);
    case Backend::kRedis:
      return open_store("redis://" + server_->host(), cluster);
    case Backend::kEtcd:
      return open_store("etcd://" + server_->host(), cluster);
    case Backend::kHttp:
      return open_store("http://" + server_->host() + "/metadata", cluster);
  }
  return nullptr;
}

void until_holds(const std::function<bool()>& holds) {
  if (!mc::until(holds)) throw std::runtime_error("waited in vain");
}

}  // namespace mc::conformance
