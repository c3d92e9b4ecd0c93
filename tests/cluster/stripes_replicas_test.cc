// SPDX-License-Identifier: Apache-2.0
//
// Objects in stripes with replicas: each part gets a second holder, and the object survives the
// loss of any one host.
#include <fstream>

#include "cluster/stripes_fixture.h"

namespace mc::cluster {
namespace {

using conformance::slice;

class StripesReplicas : public Stripes {
 protected:
  static constexpr std::uint64_t kStripes = 8;  // of kLarge

  static mc_put_options twice() {
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.replicas = 2;
    return options;
  }
  // The first agent puts the object with two replicas.
  void put_twice() {
    const mc_put_options options = twice();
    ASSERT_EQ(put(0, "large", value_, &options), MC_OK) << mc_last_error();
    wait_until_there_are(2 * kStripes);
  }
  // Waits until the agents have that many stripes, all sealed.
  void wait_until_there_are(std::uint64_t count) {
    ASSERT_TRUE(until([&] { return stripes_here() == count && !any_is_open(); })) << stripes_here();
  }
  bool any_is_open() {
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i]->running() && stripes(i, "stripes_open") != 0) return true;
    }
    return false;
  }
  Json::Value where(std::size_t agent) {
    Json::Value request;
    request["key"] = "large";
    return ask(agent, "where", request);
  }
  void kill(std::size_t agent) {
    close_clients(agent);
    agents_[agent]->kill_hard();
  }
  bool is_stopped(std::size_t agent) const {
    std::ifstream file("/proc/" + std::to_string(agents_[agent]->pid()) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name = text.rfind(") ");
    return name != std::string::npos && name + 2 < text.size() && text[name + 2] == 'T';
  }
  std::uint64_t live_bytes() {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      const Json::Value status = ask(i, "status");
      for (const Json::Value& tenant : status["namespaces"]) {
        bytes += tenant["live_bytes"].asUInt64();
      }
    }
    return bytes;
  }

  const std::string value_ = content("large", kLarge);
};

TEST_F(StripesReplicas, AnyHostMayBeLostAndItsPartsAreCopiedAnew) {
  start_striping(4);
  put_twice();
  const Json::Value at = where(0);
  EXPECT_EQ(at["parts"].asUInt(), 3u);
  EXPECT_EQ(at["replicas_wanted"].asUInt(), 2u);
  EXPECT_EQ(at["missing_parts"].asUInt(), 0u);
  for (const std::size_t victim : {2u, 1u}) {
    SCOPED_TRACE("agent " + std::to_string(victim));
    kill(victim);
    for (const std::size_t reader : {0u, 3u}) {
      EXPECT_TRUE(get(reader, "large") == value_) << reader;
      EXPECT_TRUE(exists(reader, "large")) << reader;
      mc_stat_info info{};
      info.struct_size = sizeof info;
      EXPECT_EQ(mc_stat(client(reader), slice("large"), &info), MC_OK) << mc_last_error();
      EXPECT_EQ(info.length, value_.size());
    }
    wait_until_there_are(2 * kStripes);
  }
  // Two hosts are left, and each has the whole object.
  EXPECT_EQ(stripes(0, "stripes_here"), kStripes);
  EXPECT_EQ(stripes(3, "stripes_here"), kStripes);
  kill(0);
  EXPECT_TRUE(get(3, "large") == value_);
}

TEST_F(StripesReplicas, TwoHostsAreEnough) {
  start_striping(2);
  put_twice();
  kill(1);
  EXPECT_TRUE(get(0, "large") == value_);
  EXPECT_TRUE(exists(0, "large"));
}

TEST_F(StripesReplicas, AGetUnderWayGoesOnWhenAHolderDies) {
  for (const std::size_t victim : {0u, 1u}) {
    SCOPED_TRACE("agent " + std::to_string(victim));
    agents_.clear();
    start_striping(2);
    put_twice();
    start_armed("gather.before_read=stop");
    mc_client* const reader = client(2);
    auto value = std::async(std::launch::async, [&] {
      std::string bytes(kLarge, '\0');
      std::size_t length = 0;
      const mc_status status = mc_get(reader, slice("large"), bytes.data(), bytes.size(), &length);
      return status == MC_OK && length == bytes.size() ? bytes : mc_status_name(status);
    });
    const bool stopped = until([&] { return is_stopped(2); });
    kill(victim);
    agents_[2]->pause(false);
    EXPECT_TRUE(stopped);
    EXPECT_TRUE(value.get() == value_);
    for (std::size_t agent = 0; agent < 3; ++agent) close_clients(agent);
  }
}

TEST_F(StripesReplicas, AHostThatEvictsAPartLosesOnlyThatPart) {
  start_striping(3, {{"pool_bytes", "24MiB"}, {"max_pool_bytes", "24MiB"}});
  put_twice();
  for (int i = 0; i < 80 && stripes(1, "broken") == 0; ++i) {
    const std::string key = "filler " + std::to_string(i);
    ASSERT_EQ(put(1, key, content(key, 512 * 1024)), MC_OK) << mc_last_error();
  }
  EXPECT_GE(stripes(1, "broken"), 1u);
  for (const std::size_t reader : {0u, 2u}) {
    EXPECT_TRUE(exists(reader, "large")) << reader;
    EXPECT_TRUE(get(reader, "large") == value_) << reader;
  }
  EXPECT_EQ(where(0)["missing_parts"].asUInt(), 0u);
}

TEST_F(StripesReplicas, UpsertsAndRemovalsReachAllReplicas) {
  start_striping(4);
  put_twice();
  mc_put_options upsert = twice();
  upsert.upsert = 1;
  const std::string other = content("other", 3 * kMiB);
  ASSERT_EQ(put(1, "large", other, &upsert), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) EXPECT_TRUE(get(agent, "large") == other);
  wait_until_there_are(6);
  ASSERT_EQ(mc_remove(client(2), slice("large"), 0), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) {
    EXPECT_EQ(get(agent, "large"), "<MC_NOT_FOUND>");
    EXPECT_FALSE(exists(agent, "large"));
  }
  wait_until_there_are(0);
  EXPECT_TRUE(until([&] { return live_bytes() == 0; })) << live_bytes();
}

TEST_F(StripesReplicas, TheWantedCountIsKnownAfterARestartOfAll) {
  // No part is copied before all agents have reported to the next master.
  start(3, {{"stripe_bytes", "1MiB"}},
        {"--cluster-store", "memory://", "--recover-ms", option_time(2000)});
  put_twice();
  for (std::size_t agent = 0; agent < 3; ++agent) close_clients(agent);
  master_->kill_hard();
  for (const auto& agent : agents_) {
    agent->kill_hard();
    agent->start(options_);
  }
  master_->start();
  wait_until_joined();
  ASSERT_TRUE(until([&] { return get(0, "large") == value_; }));
  EXPECT_EQ(stripes_here(), 2 * kStripes);
  EXPECT_EQ(where(0)["replicas_wanted"].asUInt(), 2u);
  kill(2);
  EXPECT_TRUE(get(0, "large") == value_);
  wait_until_there_are(2 * kStripes);
}

TEST_F(StripesReplicas, ADrainKeepsTheCountOfReplicas) {
  start_striping(4);
  put_twice();
  Json::Value request;
  const Json::Value nodes = ask(1, "nodes");
  for (const Json::Value& node : nodes["nodes"]) {
    if (node["self"].asBool()) request["node"] = node["node"];
  }
  ASSERT_TRUE(until([&] {
    EXPECT_TRUE(get(0, "large") == value_);
    return ask(0, "drain", request)["done"].asBool() || HasFailure();
  }));
  EXPECT_EQ(stripes(1, "stripes_here"), 0u);
  wait_until_there_are(2 * kStripes);
  kill(1);
  EXPECT_TRUE(get(0, "large") == value_);
  kill(2);
  EXPECT_TRUE(get(0, "large") == value_);
}

}  // namespace
}  // namespace mc::cluster
