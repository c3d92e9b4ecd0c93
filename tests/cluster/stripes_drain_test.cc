// SPDX-License-Identifier: Apache-2.0
//
// A drain of a host with stripes: the objects stay readable all the time, whichever host dies.
#include "cluster/stripes_fixture.h"

namespace mc::cluster {
namespace {

using conformance::slice;

class StripesDrain : public Stripes {
 protected:
  Json::Value node_of(std::size_t agent) {
    const Json::Value nodes = ask(agent, "nodes");
    for (const Json::Value& node : nodes["nodes"]) {
      if (node["self"].asBool()) return node["node"];
    }
    ADD_FAILURE() << "agent " << agent << " is no member";
    return {};
  }
  Json::Value drain(std::size_t asked, const Json::Value& node) {
    Json::Value request;
    request["node"] = node;
    return ask(asked, "drain", request);
  }
  // Repeats the drain until the drain has ended. Meanwhile all readers can read the object.
  void drain_to_the_end(const Json::Value& node, const std::vector<std::size_t>& readers) {
    Json::Value progress;
    EXPECT_TRUE(until([&] {
      for (const std::size_t reader : readers) {
        EXPECT_TRUE(get(reader, "large") == value_) << reader;
        EXPECT_TRUE(exists(reader, "large")) << reader;
      }
      progress = drain(readers.front(), node);
      return progress["done"].asBool() || HasFailure();
    })) << progress.toStyledString();
    copied_ = progress["copied"].asUInt64();
  }
  void kill(std::size_t agent) {
    close_clients(agent);
    agents_[agent]->kill_hard();
  }
  Json::Value where(std::size_t agent) {
    Json::Value request;
    request["key"] = "large";
    return ask(agent, "where", request);
  }
  // The whole object is on agent 1 and can go only to agent 2, which dies at the failpoint.
  void start_with_dying_target(const std::string& failpoint) {
    start_striping(2);
    ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
    start_armed(failpoint);
    all_know_all();
    drain(0, node_of(0));
  }

  const std::string value_ = content("large", kLarge);
  std::uint64_t copied_ = 0;
};

TEST_F(StripesDrain, APartGoesToAHostWithoutAPart) {
  start_striping(4);
  ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
  ASSERT_EQ(where(0)["parts"].asUInt(), 3u);
  const std::uint64_t there = stripes(2, "stripes_here");
  ASSERT_GT(there, 0u);
  drain_to_the_end(node_of(2), {0, 1, 3});
  EXPECT_EQ(copied_, 1u);
  EXPECT_EQ(stripes(2, "stripes_here"), 0u);
  EXPECT_EQ(stripes(0, "stripes_here"), there);
  EXPECT_EQ(stripes(0, "moves"), 1u);
  kill(2);
  EXPECT_TRUE(until([&] { return where(0)["holders"].size() == 3; }));
  EXPECT_EQ(where(0)["parts"].asUInt(), 3u);
  EXPECT_EQ(where(0)["missing_parts"].asUInt(), 0u);
  for (const std::size_t reader : {0u, 1u, 3u}) EXPECT_TRUE(get(reader, "large") == value_);
  ASSERT_EQ(mc_remove(client(1), slice("large"), 0), MC_OK) << mc_last_error();
  EXPECT_EQ(stripes_here(), 0u);
}

TEST_F(StripesDrain, IfAllHostsHavePartsOneTakesAnotherAndKeepsItOverARestart) {
  start_striping(3);
  ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
  ASSERT_EQ(where(0)["parts"].asUInt(), 2u);
  const Json::Value first = node_of(1);
  drain_to_the_end(first, {0, 1, 2});
  drain_to_the_end(node_of(2), {0, 1, 2});
  EXPECT_EQ(stripes(0, "stripes_here"), 8u);
  EXPECT_EQ(stripes_here(), 8u);
  kill(1);
  kill(2);
  kill(0);
  start_agent(0);
  EXPECT_TRUE(until([&] { return get(0, "large") == value_; }));
  EXPECT_EQ(stripes(0, "stripes_here"), 8u);
  EXPECT_EQ(where(0)["parts"].asUInt(), 2u);
  // A part goes back, the other part stays.
  start_agent(1);
  ASSERT_TRUE(until([&] { return get(1, "large") == value_; }));
  Json::Value stop;
  stop["node"] = first;
  stop["stop"] = true;
  ask(0, "drain", stop);
  drain_to_the_end(node_of(0), {0, 1});
  EXPECT_EQ(stripes(1, "stripes_here"), 8u);
  kill(0);
  EXPECT_TRUE(get(1, "large") == value_);
}

TEST_F(StripesDrain, StripesWithoutATargetStayAndTheDrainSaysSo) {
  start_striping(2);
  ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
  drain(0, node_of(0));
  ASSERT_TRUE(until([&] { return drain(0, node_of(1))["unplaced"].asUInt64() == 1; }));
  EXPECT_FALSE(drain(0, node_of(1))["done"].asBool());
  EXPECT_TRUE(get(0, "large") == value_);
}

TEST_F(StripesDrain, ATargetThatDiesLosesNothing) {
  for (const std::string failpoint : {"fetch.before_read=kill", "stripes.pulled=kill",
                                      "stripes.before_moved=kill", "stripes.sealed=kill"}) {
    SCOPED_TRACE(failpoint);
    agents_.clear();
    start_with_dying_target(failpoint);
    const Json::Value source = node_of(1);
    drain(0, source);
    agents_[2]->wait_until_killed();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(get(0, "large") == value_);
    agents_[2]->arm("");
    start_agent(2);
    drain_to_the_end(source, {0});
    EXPECT_EQ(stripes(2, "stripes_here"), 8u);
    EXPECT_EQ(stripes(1, "stripes_here"), 0u);
    kill(1);
    EXPECT_TRUE(get(0, "large") == value_);
    close_clients(0);
    close_clients(2);
  }
}

TEST_F(StripesDrain, ASourceThatDiesComesBackAndIsDrained) {
  for (const std::string failpoint : {"stripes.asked_for_part=kill", "stripes.before_drop=kill"}) {
    SCOPED_TRACE(failpoint);
    agents_.clear();
    start_striping(1, {{"stripe_grace_seconds", option_time(60)}});
    start_armed(failpoint);
    all_know_all();
    ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
    const Json::Value source = node_of(1);
    drain(0, source);
    agents_[1]->wait_until_killed();
    close_clients(1);
    agents_[1]->arm("");
    start_agent(1);
    ASSERT_TRUE(until([&] { return get(0, "large") == value_; }));
    drain_to_the_end(source, {0});
    EXPECT_EQ(stripes(0, "stripes_here"), 8u);
    EXPECT_EQ(stripes(1, "stripes_here"), 0u);
    kill(1);
    EXPECT_TRUE(get(0, "large") == value_);
    close_clients(0);
  }
}

TEST_F(StripesDrain, AMasterThatDiesIsAskedAgain) {
  start_striping(3);
  ASSERT_EQ(put(0, "large", value_), MC_OK) << mc_last_error();
  const Json::Value source = node_of(1);
  drain(0, source);
  master_->kill_hard();
  master_->start();
  // The new master at first knows no member, and has not heard of the drain.
  ASSERT_TRUE(until([&] { return ask(0, "nodes")["nodes"].size() == 3; }));
  ASSERT_TRUE(until([&] { return exists(0, "large"); }));
  drain_to_the_end(source, {0, 2});
  EXPECT_EQ(stripes(1, "stripes_here"), 0u);
  kill(1);
  EXPECT_TRUE(get(0, "large") == value_);
  EXPECT_TRUE(get(2, "large") == value_);
}

}  // namespace
}  // namespace mc::cluster
