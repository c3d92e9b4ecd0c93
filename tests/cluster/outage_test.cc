// SPDX-License-Identifier: Apache-2.0
//
// The cluster store is away, and clients do not notice: real masters, agents and stores.
// MC_TEST_LONG=1: for 60 s.
#include <cstdlib>

#include "cluster/cluster_fixture.h"
#include "conformance/store/store_servers.h"
#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"

namespace mc::cluster {
namespace {

using conformance::slice;
using conformance::StoreServer;

struct Outage {
  const char* name;
  const char* scheme;
  bool etcd;
  bool stands_still;  // else: dead
};

void PrintTo(const Outage& outage, std::ostream* out) { *out << outage.name; }

class StoreIsAway : public ClusterTest, public testing::WithParamInterface<Outage> {
 protected:
  void start_both_masters() {
    const bool etcd = GetParam().etcd;
    store_ = std::make_unique<StoreServer>(etcd ? conformance::etcd_command()
                                                : conformance::redis_command());
    const std::string url = GetParam().scheme + store_->host();
    const std::vector<std::string> flags = {"--cluster-store", url, "--recover-ms",
                                            option_time(300)};
    standby_ = std::make_unique<metadata::MasterProcess>(flags);
    start(3, {{"cluster_store", url}, {"masters", ""}}, flags);
    wait_until_joined();
  }
  void be_away(bool away) {
    if (GetParam().stands_still) {
      store_->pause(away);
    } else if (away) {
      store_->kill_hard();
    } else {
      store_->start();
    }
  }
  Json::Value partition() { return ask(0, "cluster")["partitions"][0]; }
  // Empty: none.
  std::string leader_in_store() {
    auto store = metadata::open_cluster_store(GetParam().scheme + store_->host(), "default");
    if (!store) return store.error().to_string();
    const auto leader = metadata::find_leader(**store, now_ns() + kSecondNs);
    return leader ? leader->value : "";
  }

  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<metadata::MasterProcess> standby_;
};

TEST_P(StoreIsAway, AllPlacesAreFoundAndAllRemovalsAreComplete) {
  start_both_masters();
  const Json::Value before = partition();
  ASSERT_EQ(put(0, "old", content("first", 3000)), MC_OK);
  mc_put_options upsert = MC_PUT_OPTIONS_INIT;
  upsert.upsert = 1;
  be_away(true);
  const bool long_run = std::getenv("MC_TEST_LONG") != nullptr;
  const std::uint64_t until_ns = now_ns() + (long_run ? 60 : 3) * kSecondNs;
  unsigned rounds = 0;
  for (; now_ns() < until_ns; ++rounds) {
    const std::string key = "key " + std::to_string(rounds);
    ASSERT_EQ(put(0, key, content(key, 3000)), MC_OK) << mc_last_error();
    ASSERT_EQ(get(1, key), content(key, 3000)) << "round " << rounds;
    ASSERT_EQ(mc_remove(client(2), slice(key), kWatchdogNs), MC_OK) << mc_last_error();
    ASSERT_EQ(get(0, key), "<MC_NOT_FOUND>");
    ASSERT_EQ(put(1, "old", content(key, 3000), &upsert), MC_OK) << mc_last_error();
    ASSERT_EQ(get(2, "old"), content(key, 3000));
  }
  EXPECT_GT(rounds, 5U);
  be_away(false);
  EXPECT_TRUE(until([&] { return leader_in_store() == before["leader"].asString(); }))
      << leader_in_store();
  EXPECT_EQ(partition()["leader"], before["leader"]) << ask(0, "cluster").toStyledString();
  EXPECT_EQ(partition()["epoch"], before["epoch"]) << ask(0, "cluster").toStyledString();
  ASSERT_EQ(put(0, "after", content("after", 3000)), MC_OK);
  EXPECT_EQ(get(1, "after"), content("after", 3000));
  RecordProperty("rounds", static_cast<int>(rounds));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreIsAway,
                         testing::Values(Outage{"DeadRedis", "redis://", false, false},
                                         Outage{"RedisThatStandsStill", "redis://", false, true},
                                         Outage{"DeadEtcd", "etcd://", true, false},
                                         Outage{"EtcdThatStandsStill", "etcd://", true, true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace mc::cluster
