// SPDX-License-Identifier: Apache-2.0
//
// Puts with MC_VISIBLE_REPLICATED: real masters and agents.
#include "cluster/cluster_fixture.h"
#include "libmc/base/clock.h"

namespace mc::cluster {
namespace {

using conformance::slice;

class ReplicatedPut : public ClusterTest {
 protected:
  static mc_put_options replicated(std::uint32_t replicas = 2) {
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.replicas = replicas;
    options.visibility = MC_VISIBLE_REPLICATED;
    return options;
  }
  std::uint64_t node_id(std::size_t agent) {
    return std::stoull(ask(agent, "status")["cluster"]["node"].asString());
  }
};

TEST_F(ReplicatedPut, ObjectsAreThereAfterTheirHostDied) {
  start(3);
  constexpr std::size_t kObjects = 200;
  const mc_put_options options = replicated();
  std::vector<std::string> keys, values;
  for (std::size_t i = 0; i < kObjects; ++i) {
    keys.push_back("key " + std::to_string(i));
    values.push_back(content(keys.back(), 100 + i * 300));
  }
  std::vector<mc_slice> slices;
  for (const std::string& value : values) slices.push_back(slice(value));
  std::vector<mc_put_item> items;
  for (std::size_t i = 0; i < kObjects; ++i)
    items.push_back({slice(keys[i]), &slices[i], 1, {}, MC_OK});
  ASSERT_EQ(mc_put_batch(client(0), items.data(), items.size(), &options), MC_OK)
      << mc_last_error();
  agents_[0]->kill_hard();
  for (std::size_t i = 0; i < kObjects; ++i) {
    std::string got;
    EXPECT_TRUE(until([&] { return (got = get(1, keys[i])) == values[i]; }))
        << keys[i] << ": " << got;
  }
}

TEST_F(ReplicatedPut, EveryKindOfPutWaits) {
  start(3, {{"pool_bytes", "16MiB"}, {"max_pool_bytes", "16MiB"}});
  mc_put_options options = replicated();
  ASSERT_EQ(put(0, "new", "bytes", &options), MC_OK) << mc_last_error();
  EXPECT_EQ(holders(0, "new"), 2u);

  ASSERT_EQ(put(0, "existing", "bytes"), MC_OK);
  ASSERT_EQ(put(0, "existing", "bytes", &options), MC_OK) << mc_last_error();
  EXPECT_EQ(holders(0, "existing"), 2u);

  ASSERT_EQ(put(1, "existing there", "bytes"), MC_OK);
  ASSERT_EQ(put(0, "existing there", "bytes", &options), MC_OK) << mc_last_error();
  EXPECT_GE(holders(0, "existing there"), 2u);

  const std::string said = mcctl(0, "put by-mcctl /proc/version --replicas 2");
  EXPECT_EQ(holders(0, "by-mcctl"), 2u) << said;

  options.upsert = 1;
  ASSERT_EQ(put(0, "new", "other bytes", &options), MC_OK) << mc_last_error();
  EXPECT_EQ(holders(0, "new"), 2u);
  options.upsert = 0;

  options.host = node_id(1);
  ASSERT_EQ(put(0, "elsewhere", "bytes", &options), MC_OK) << mc_last_error();
  EXPECT_EQ(holders(0, "elsewhere"), 2u);
  options.host = 0;

  mc_group* group = nullptr;
  ASSERT_EQ(mc_group_begin(client(0), &group), MC_OK);
  mc_put_options member = options;
  member.group = group;
  for (const char* const key : {"first of a group", "second of a group"}) {
    ASSERT_EQ(put(0, key, "bytes", &member), MC_OK) << mc_last_error();
  }
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  EXPECT_EQ(holders(0, "first of a group"), 2u);
  EXPECT_EQ(holders(0, "second of a group"), 2u);

  mc_cq* queue = nullptr;
  ASSERT_EQ(mc_cq_create(client(0), &queue), MC_OK);
  const mc_slice value = slice("bytes");
  const mc_put_item item{slice("asynchronous"), &value, 1, {}, MC_OK};
  ASSERT_EQ(mc_put_async(client(0), queue, &item, 1, &options, 0, nullptr), MC_OK);
  mc_completion completion{};
  std::size_t count = 0;
  ASSERT_EQ(mc_cq_wait(queue, &completion, 1, &count, kWatchdogNs), MC_OK);
  mc_cq_destroy(queue);
  EXPECT_EQ(completion.status, MC_OK);
  EXPECT_EQ(holders(0, "asynchronous"), 2u);
}

TEST_F(ReplicatedPut, WithTooFewHostsEndsAtItsDeadline) {
  start(1);
  mc_put_options options = replicated();
  options.timeout_ns = kSecondNs / 2;
  EXPECT_EQ(put(0, "key", "bytes", &options), MC_TIMEOUT);
  EXPECT_EQ(get(0, "key"), "bytes");
  options.replicas = 1;
  EXPECT_EQ(put(0, "one replica", "bytes", &options), MC_OK);
}

TEST_F(ReplicatedPut, WithoutAMasterIsNotAcknowledged) {
  start(2);
  master_->kill_hard();
  ASSERT_TRUE(until([&] { return !ask(0, "status")["cluster"]["master_ready"].asBool(); }));
  mc_put_options options = replicated();
  EXPECT_EQ(put(0, "key", "bytes", &options), MC_NO_MASTER);
  EXPECT_EQ(get(0, "key"), "bytes");
}

TEST_F(ReplicatedPut, WithoutAClusterIsUnsupported) {
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  agents_.back()->start({{"pool_bytes", "1MiB"}});
  mc_put_options options = replicated();
  EXPECT_EQ(put(0, "key", "bytes", &options), MC_UNSUPPORTED);
  EXPECT_NE(std::string(mc_last_error()).find("cluster"), std::string::npos) << mc_last_error();
  options.replicas = 1;
  EXPECT_EQ(put(0, "key", "bytes", &options), MC_OK);
}

}  // namespace
}  // namespace mc::cluster
