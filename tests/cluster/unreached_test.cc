// SPDX-License-Identifier: Apache-2.0
//
// While a master, or a host that holds the object, cannot be reached, no client is told that there is no object.
// Real masters and agents.
#include <sys/stat.h>

#include "cluster/cluster_fixture.h"
#include "cluster/network.h"
#include "conformance/store/store_servers.h"
#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"

namespace mc::cluster {
namespace {

using conformance::slice;
using conformance::TempDirectory;

class Unreached : public ClusterTest {
 protected:
  // The status of each call about a key that the agent's host does not have.
  std::vector<std::string> statuses(std::size_t agent, const char* key) {
    mc_client* const at = client(agent);
    std::vector<mc_status> said = {mc_exists(at, slice(key))};
    mc_stat_info info{};
    info.struct_size = sizeof info;
    said.push_back(mc_stat(at, slice(key), &info));
    mc_view view{};
    said.push_back(mc_get_view(at, slice(key), &view));
    char byte = 0;
    const mc_span piece{&byte, 1};
    mc_get_item item{slice(key), &piece, 1, 0, 0, MC_OK};
    said.push_back(mc_get_batch(at, &item, 1));
    mc_status one = MC_OK;
    EXPECT_EQ(mc_exists_batch(at, std::vector{slice(key)}.data(), 1, &one), MC_OK);
    said.push_back(one);
    said.push_back(async(at, key));
    std::vector<std::string> names;
    for (const mc_status status : said) names.emplace_back(mc_status_name(status));
    names.push_back(get(agent, key));
    return names;
  }

  // Waits until all reading calls have this status.
  void expect_all(std::size_t agent, const char* key, const std::string& status) {
    std::vector<std::string> wanted(6, status);
    wanted.push_back("<" + status + ">");
    std::vector<std::string> said;
    EXPECT_TRUE(until([&] {
      said = statuses(agent, key);
      return said == wanted;
    })) << testing::PrintToString(said);
  }

 private:
  static mc_status async(mc_client* at, const char* key) {
    mc_cq* queue = nullptr;
    EXPECT_EQ(mc_cq_create(at, &queue), MC_OK);
    char byte = 0;
    const mc_span piece{&byte, 1};
    mc_get_item item{slice(key), &piece, 1, 0, 0, MC_OK};
    EXPECT_EQ(mc_get_async(at, queue, &item, 1, 0, nullptr), MC_OK);
    mc_completion completion{};
    std::size_t count = 0;
    EXPECT_EQ(mc_cq_wait(queue, &completion, 1, &count, kWatchdogNs), MC_OK);
    mc_cq_destroy(queue);
    EXPECT_EQ(completion.status, item.status);
    return item.status;
  }
};

TEST_F(Unreached, WithoutAMasterNoCallSaysThatThereIsNoObject) {
  start(2);
  ASSERT_EQ(put(0, "there", "bytes"), MC_OK);
  ASSERT_EQ(put(1, "here", "bytes"), MC_OK);
  EXPECT_EQ(get(1, "nowhere"), "<MC_NOT_FOUND>");
  master_->kill_hard();
  expect_all(1, "there", "MC_NO_MASTER");
  expect_all(1, "nowhere", "MC_NO_MASTER");
  EXPECT_EQ(mc_remove(client(1), slice("there"), kSecondNs / 2), MC_NO_MASTER);
  EXPECT_EQ(get(1, "here"), "bytes");
  const std::string removal = "--timeout-ms " + option_time(300) + " rm there";
  for (const std::string words :
       {"get there", "stat there", "exists here there", removal.c_str(), "cluster status"}) {
    const std::string said = mcctl(1, words + "; echo exit status $?");
    EXPECT_NE(said.find("exit status 4"), std::string::npos) << words << ":\n" << said;
  }
  EXPECT_NE(mcctl(1, "exists here there").find("yes here\n?   there"), std::string::npos);
  const std::string json = mcctl(1, "--json exists there");
  EXPECT_NE(json.find("MC_NO_MASTER"), std::string::npos) << json;
  master_->start();
  ASSERT_TRUE(until([&] { return get(1, "there") == "bytes"; }));
  EXPECT_EQ(get(1, "nowhere"), "<MC_NOT_FOUND>");
}

TEST_F(Unreached, AHolderThatIsAwayIsNamedAsTheReason) {
  // The master keeps the places of the dead host for the whole test.
  start(2, {},
        {"--cluster-store", "memory://", "--recover-ms", option_time(100), "--suspect-ms", "30000",
         "--gone-ms", "60000"});
  ASSERT_EQ(put(0, "there", content("there", 100'000)), MC_OK);
  agents_[0]->kill_hard();
  EXPECT_EQ(get(1, "there"), "<MC_HOLDER_AWAY>");
  EXPECT_EQ(get(1, "nowhere"), "<MC_NOT_FOUND>");
  const std::string said = mcctl(1, "get there; echo exit status $?");
  EXPECT_NE(said.find("exit status 4"), std::string::npos) << said;
}

TEST_F(Unreached, NodesShowsWhichHostsAreDown) {
  start(3);
  const Json::Value before = ask(0, "nodes");
  ASSERT_EQ(before["nodes"].size(), 3u);
  EXPECT_EQ(before["down"].size(), 0u);
  const std::uint64_t node = std::stoull(ask(2, "status")["cluster"]["node"].asString());
  agents_[2]->kill_hard();
  Json::Value now;
  ASSERT_TRUE(until([&] {
    now = ask(0, "nodes");
    return now["nodes"].size() == 2;
  }));
  ASSERT_EQ(now["down"].size(), 1u) << now.toStyledString();
  EXPECT_EQ(std::stoull(now["down"][0]["node"].asString()), node);
  const std::string table = mcctl(0, "nodes");
  EXPECT_NE(table.find(now["down"][0]["address"].asString()), std::string::npos) << table;
  EXPECT_NE(table.find("down for"), std::string::npos) << table;
  start_agent(2);
  EXPECT_TRUE(until([&] { return ask(0, "nodes")["nodes"].size() == 3; }));
  EXPECT_EQ(ask(0, "nodes")["down"].size(), 0u);
  const Json::Value after = ask(0, "nodes");
  for (const Json::Value& host : after["nodes"]) {
    EXPECT_TRUE(host["clock_ahead_ms"].isInt64()) << host.toStyledString();
  }
  EXPECT_NE(mcctl(0, "doctor").find("of all hosts are within"), std::string::npos);
}

TEST_F(Unreached, ARemovalIsRememberedForAHostThatIsDown) {
  start(3);
  const auto remove = [&](const std::string& words) {
    return mcctl(0, "rm " + words + " 2>&1; echo exit status $?");
  };
  const auto kill = [&] {
    agents_[2]->kill_hard();
    ASSERT_TRUE(until([&] { return ask(0, "nodes")["down"].size() == 1; }));
  };
  ASSERT_EQ(put(2, "key", "bytes"), MC_OK);
  kill();
  std::string said = remove("key");
  EXPECT_NE(said.find("no host that is up has the key key"), std::string::npos) << said;
  EXPECT_NE(said.find("exit status 4"), std::string::npos) << said;
  said = remove("--prefix other --yes");
  EXPECT_NE(said.find("1 host is down"), std::string::npos) << said;
  EXPECT_NE(said.find("exit status 0"), std::string::npos) << said;
  start_agent(2);
  ASSERT_TRUE(until([&] { return ask(0, "nodes")["nodes"].size() == 3; }));
  EXPECT_TRUE(until([&] { return get(2, "key") == "<MC_NOT_FOUND>"; })) << get(2, "key");
  kill();
  said = mcctl(0, "undrain somewhere; echo exit status $?");
  EXPECT_NE(said.find("exit status 2"), std::string::npos) << said;
  said = mcctl(0, "drain " + ask(0, "nodes")["down"][0]["address"].asString() + " --dead");
  EXPECT_NE(said.find("given up"), std::string::npos) << said;
  EXPECT_EQ(ask(0, "nodes")["down"].size(), 0u);
  EXPECT_NE(remove("key").find("exit status 3"), std::string::npos);
}

TEST_F(Unreached, AnAgentWithAnotherKeySaysSo) {
  const TempDirectory directory;
  const std::string key = directory.file("cluster.key", std::string(64, 'a'));
  const std::string other = directory.file("other.key", std::string(64, 'b'));
  for (const std::string& file : {key, other}) ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  start(1, {{"cluster_key_file", key}},
        {"--cluster-store", "memory://", "--recover-ms", option_time(100), "--cluster-key-file",
         key});
  ASSERT_EQ(put(0, "secret", "of the cluster"), MC_OK);
  AgentOptions wrong = options_;
  wrong["cluster_key_file"] = other;
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  agents_.back()->start(wrong);
  expect_all(1, "secret", "MC_WRONG_KEY");
  EXPECT_FALSE(ask(1, "status")["cluster"]["master_ready"].asBool());
  const std::string said = mcctl(1, "get secret 2>&1; echo exit status $?");
  EXPECT_NE(said.find("exit status 4"), std::string::npos) << said;
  EXPECT_NE(said.find("key file"), std::string::npos) << said;
}

// The agent learns from the store alone that the master is on another host.
TEST_F(Unreached, AnAgentThatOtherHostsCannotDialSaysSo) {
  if (const std::string why = Network::obstacle(); !why.empty()) GTEST_SKIP() << why;
  const Network network(2);
  const Network::Inside inside(network, 1);
  const conformance::StoreServer redis(conformance::redis_command());
  const std::string url = "redis://" + redis.host();
  auto store = metadata::open_cluster_store(url, "default");
  ASSERT_TRUE(store) << store.error().to_string();
  metadata::LeaderLock lock(**store, Network::address(0) + ":7400", 60'000,
                            [] { return now_ns(); });
  ASSERT_EQ(lock.campaign(now_ns() + kWatchdogNs), true);
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  agents_.back()->start({{"cluster_store", url}, {"pool_bytes", "1MiB"}});
  expect_all(0, "anything", "MC_NOT_ADVERTISED");
  const Json::Value cluster = ask(0, "status")["cluster"];
  EXPECT_NE(cluster["master_trouble"].asString().find("listen = \"" + Network::address(1) + ":0\""),
            std::string::npos)
      << cluster.toStyledString();
}

}  // namespace
}  // namespace mc::cluster
