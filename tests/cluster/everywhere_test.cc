// SPDX-License-Identifier: Apache-2.0
//
// Listings and removals by pattern concern all hosts of the cluster.
#include <algorithm>
#include <set>
#include <string>

#include "cluster/cluster_fixture.h"
#include "conformance/store/store_servers.h"
#include "libmc/client/admin.h"

namespace mc::cluster {
namespace {

class Everywhere : public ClusterTest {
 protected:
  // Asks as mcctl does, about the namespace "default".
  Json::Value ask_about(std::size_t agent, const std::string& verb, Json::Value request = {}) {
    request["namespace"] = "default";
    return ask(agent, verb, request);
  }
  std::vector<std::string> list(std::size_t agent, const std::string& prefix, bool local = false) {
    std::vector<std::string> keys;
    Json::Value request;
    request["prefix"] = prefix;
    request["local"] = local;
    for (;;) {
      const Json::Value page = ask_about(agent, "ls", request);
      EXPECT_FALSE(page.isMember("error")) << page.toStyledString();
      for (const Json::Value& object : page["objects"]) keys.push_back(object["key"].asString());
      EXPECT_EQ(page.get("unconfirmed", 0).asUInt(), 0u);
      request["cursor"] = page["cursor"];
      if (page["cursor"] == Json::Value("") || page["cursor"] == Json::Value(0)) return keys;
    }
  }
  Json::Value remove(std::size_t agent, const char* kind, const std::string& pattern,
                     bool local = false) {
    Json::Value request;
    request[kind] = pattern;
    request["local"] = local;
    return ask_about(agent, "rm", request);
  }
};

TEST_F(Everywhere, EachHostListsTheKeysOfAll) {
  start(3);
  std::vector<std::string> all, mine;
  for (std::size_t i = 0; i < 1500; ++i) {
    const std::string key = (i % 5 == 0 ? "b." : "a.") + std::to_string(10'000 + i);
    ASSERT_EQ(put(i % 3, key, "v"), MC_OK) << mc_last_error();
    if (i % 5 != 0) all.push_back(key);
    if (i % 5 != 0 && i % 3 == 1) mine.push_back(key);
  }
  std::ranges::sort(all);
  for (std::size_t agent = 0; agent < 3; ++agent) EXPECT_EQ(list(agent, "a."), all);
  auto here = list(1, "a.", true);
  std::ranges::sort(here);
  std::ranges::sort(mine);
  EXPECT_EQ(here, mine);
}

TEST_F(Everywhere, ARemovalByPatternReachesTheOtherHosts) {
  start(2);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_EQ(put(i % 2, "a" + number, "v"), MC_OK) << mc_last_error();
    ASSERT_EQ(put(i % 2, "b" + number, "v"), MC_OK) << mc_last_error();
  }
  Json::Value answer = remove(0, "regex", "^b[0-9]$");
  EXPECT_EQ(answer["removed"].asUInt(), 10u) << answer.toStyledString();
  EXPECT_EQ(answer["unconfirmed"].asUInt(), 0u);
  EXPECT_EQ(get(1, "b7"), "<MC_NOT_FOUND>");
  EXPECT_EQ(get(0, "b11"), "v");
  EXPECT_EQ(remove(1, "prefix", "a")["removed"].asUInt(), 40u);
  EXPECT_EQ(list(0, "").size(), 30u);

  Json::Value request;
  request["verb"] = "rm";
  request["namespace"] = "default";
  request["regex"] = "b(?=1)";
  const auto refused = client::admin_call(agents_[0]->socket(), request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().text().find("a look-ahead"), std::string::npos);

  // Of this host alone.
  EXPECT_EQ(remove(1, "prefix", "b", true)["removed"].asUInt(), 15u);
  EXPECT_EQ(list(1, "").size(), 15u);
  EXPECT_EQ(remove(1, "prefix", "")["removed"].asUInt(), 15u);
  EXPECT_TRUE(list(0, "").empty());
}

TEST_F(Everywhere, ARemovalOfAllNamespacesReachesAHostThatWasAway) {
  start(2, {}, {"--cluster-store", "memory://", "--recover-ms", option_time(100)});
  ASSERT_EQ(put(0, "here", "value"), MC_OK);
  ASSERT_EQ(put(1, "there", "value"), MC_OK);
  agents_[1]->pause(true);
  ASSERT_TRUE(until([&] { return ask(0, "status")["cluster"]["members"].asUInt() == 1; }));
  metadata::MasterClientOptions options;
  options.masters = {master_->address()};
  const auto leader = metadata::tool(options);
  const auto removed = metadata::wait_for<metadata::wire::RemoveMatchingAnswer>(
      [&](auto done) { leader->remove_matching({}, metadata::soon(), std::move(done)); });
  ASSERT_TRUE(removed) << removed.error().to_string();
  EXPECT_EQ(removed->removed, 1u);
  EXPECT_EQ(get(0, "here"), "<MC_NOT_FOUND>");
  agents_[1]->pause(false);
  EXPECT_TRUE(until([&] { return get(1, "there") == "<MC_NOT_FOUND>"; }));
  EXPECT_EQ(get(0, "there"), "<MC_NOT_FOUND>");
}

TEST_F(Everywhere, AHostThatWasAwayRemovesWhatMatchesAndNothingElseUnderTheNextLeader) {
  conformance::StoreServer redis(conformance::redis_command());
  const std::string url = "redis://" + redis.host();
  metadata::MasterProcess standby({"--cluster-store", url, "--recover-ms", option_time(300)});
  start(2, {{"cluster_store", url}, {"masters", ""}},
        {"--cluster-store", url, "--recover-ms", option_time(300)});
  for (const char* key : {"old/there", "new/there"}) {
    ASSERT_EQ(put(1, key, content(key, 3000)), MC_OK);
  }
  ASSERT_EQ(put(0, "old/here", content("old/here", 3000)), MC_OK);
  const auto members = [&] { return ask(0, "status")["cluster"]["members"].asUInt(); };
  const auto ready = [&](std::size_t agent) {
    return ask(agent, "status")["cluster"]["master_ready"].asBool();
  };
  agents_[1]->pause(true);
  ASSERT_TRUE(until([&] { return members() == 1; }));
  EXPECT_EQ(remove(0, "prefix", "old/")["removed"].asUInt(), 1u);
  // After both masters have been killed once, the standby has led, whichever led first.
  master_->kill_hard();
  ASSERT_TRUE(until([&] { return ready(0); }));
  master_->start();
  standby.kill_hard();
  ASSERT_TRUE(until([&] { return ready(0); }));
  agents_[1]->pause(false);
  ASSERT_TRUE(until([&] { return members() == 2 && ready(1); }));
  EXPECT_TRUE(until([&] { return get(1, "old/there") == "<MC_NOT_FOUND>"; }));
  EXPECT_EQ(get(0, "old/there"), "<MC_NOT_FOUND>");
  EXPECT_TRUE(until([&] { return get(0, "new/there") == content("new/there", 3000); }));
}

}  // namespace
}  // namespace mc::cluster
