// SPDX-License-Identifier: Apache-2.0
//
// Real masters on loopback, with agents that hold objects. Published objects are found, removed and
// listed. Masters die, stop and come back, and no object of an agent is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "conformance/store/store_servers.h"
#include "libmc/base/clock.h"
#include "master/master_host.h"
#include "master/rpc_ends.h"
#include "metadata/master/master_options.h"
#include "metadata/store/cluster_store.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {
namespace {

MasterClientOptions to(const std::vector<std::string>& masters, const std::string& store = {}) {
  MasterClientOptions options;
  options.masters = masters;
  options.store = store;
  return options;
}

std::size_t found(MasterClient& client, const std::vector<std::string>& keys,
                  std::uint32_t wait_ms = 0) {
  std::size_t count = 0;
  for (std::size_t first = 0; first < keys.size(); first += 1000) {
    const std::vector<std::string> batch(
        keys.begin() + static_cast<std::ptrdiff_t>(first),
        keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), first + 1000)));
    const auto answer = locate(client, batch, wait_ms);
    EXPECT_TRUE(answer.has_value()) << answer.error().to_string();
    if (!answer) return 0;
    for (const Located& key : answer->keys) count += key.state == Lookup::kFound;
  }
  return count;
}

wire::RemoveReply remove(MasterClient& client, const std::vector<std::string>& keys) {
  wire::Remove request;
  for (const std::string& key : keys) request.items.push_back({.hash = hash_of(key)});
  const auto reply = wait_for<wire::RemoveReply>(
      [&](auto done) { client.remove(request, soon(), std::move(done)); });
  EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
  return reply.value_or(wire::RemoveReply{});
}

wire::RemoveMatchingAnswer remove_matching(MasterClient& client, const std::string& pattern,
                                           wire::Match::Kind kind) {
  wire::Match match;
  match.name_space = "ns";
  match.pattern = pattern;
  match.kind = kind;
  const auto reply = wait_for<wire::RemoveMatchingAnswer>(
      [&](auto done) { client.remove_matching(match, soon(), std::move(done)); });
  EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
  return reply.value_or(wire::RemoveMatchingAnswer{});
}

// Whether other members may read from the member without a question.
bool readable(MasterClient& client, NodeId node) {
  const auto answer =
      wait_for<wire::MembersAnswer>([&](auto done) { client.members(soon(), std::move(done)); });
  EXPECT_TRUE(answer.has_value()) << answer.error().to_string();
  return answer && std::ranges::any_of(answer->members, [node](const wire::MemberInfo& member) {
           return member.descriptor.node == node && member.readable;
         });
}

TEST(MasterProcess, PublishedObjectsAreFoundByEveryClient) {
  const MasterProcess master({});
  HoldingAgent agent(to({master.address()}), 1);
  const auto keys = names("k", 2000);
  agent.put(keys);
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(found(*reader, keys), keys.size());
  const auto one = locate(*reader, {"k7"});
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->holders_of(one->keys[0])[0], 1u);
  EXPECT_EQ(one->keys[0].bytes, 4096u);
  const auto counts = stats(*reader);
  EXPECT_EQ(counts.entries, keys.size());
  EXPECT_EQ(counts.members, 1u);
}

TEST(MasterProcess, MissesAreRecoveringUntilReportsAreInAndThenMisses) {
  const MasterProcess master({"--recover-ms", option_time(300)});
  const auto reader = tool(to({master.address()}));
  const auto waited = locate(*reader, {"none"}, 20'000);
  ASSERT_TRUE(waited.has_value());
  EXPECT_EQ(waited->keys[0].state, Lookup::kMiss) << "it waited for the end of the recovery";
  const MasterProcess slow({"--recover-ms", "600000"});
  const auto other = tool(to({slow.address()}));
  const auto at_once = locate(*other, {"none"});
  ASSERT_TRUE(at_once.has_value());
  EXPECT_EQ(at_once->keys[0].state, Lookup::kRecovering);
  // The holder of the second part may report later.
  HoldingAgent agent(to({slow.address()}), 1);
  PublishItem part{hash_of("lacking"), 1, 4096, {}, PublishItem::What::kHolds};
  part.attributes.striped = true;
  part.attributes.parts = 2;
  const auto verdicts = wait_for<std::vector<Verdict>>(
      [&](auto done) { agent.client().publish({part}, 0, soon(), std::move(done)); });
  ASSERT_TRUE(verdicts.has_value());
  EXPECT_EQ(*verdicts, std::vector<Verdict>{Verdict::kAccepted});
  const auto lacking = locate(*other, {"lacking"});
  ASSERT_TRUE(lacking.has_value());
  EXPECT_EQ(lacking->keys[0].missing_parts, 1u);
  EXPECT_EQ(lacking->keys[0].state, Lookup::kRecovering);
}

TEST(MasterProcess, AReportWaitsForObjectsThatItsAgentKnowsLater) {
  const MasterProcess master({"--recover-ms", option_time(300)});
  const auto keys = names("a", 1200);
  HoldingAgent agent(to({master.address()}), 1, 1, keys, false, 5);
  ASSERT_TRUE(agent.until_ready());
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(found(*reader, keys, 20'000), keys.size());
}

TEST(MasterProcess, ARestartWithAnEmptyStoreLosesNothing) {
  MasterProcess master({});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  const auto keys = names("a", 3000);
  const auto more = names("b", 1500);
  one.put(keys);
  two.put(more);
  const std::uint64_t before = one.client().epoch();
  master.kill_hard();
  master.start();
  one.put({"during"});  // waits for the new master
  ASSERT_TRUE(one.until_ready() && two.until_ready());
  EXPECT_GT(one.client().epoch(), before);
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(found(*reader, keys, 20'000), keys.size());
  EXPECT_EQ(found(*reader, more, 20'000), more.size());
  EXPECT_EQ(found(*reader, {"during"}, 20'000), 1u);
}

TEST(MasterProcess, RemovalIsCompleteWhenTheHolderHasDropped) {
  const MasterProcess master({});
  HoldingAgent agent(to({master.address()}), 1);
  agent.put(names("k", 10));
  const auto reader = tool(to({master.address()}));
  const auto reply = remove(*reader, {"k1", "k2"});
  EXPECT_EQ(reply.keys, (std::vector<Lookup>{Lookup::kFound, Lookup::kFound}));
  EXPECT_EQ(reply.unconfirmed, 0u);
  EXPECT_FALSE(agent.holds("k1"));
  EXPECT_TRUE(agent.holds("k3"));
  EXPECT_EQ(found(*reader, names("k", 10)), 8u);
}

TEST(MasterProcess, ASecondRemovalWaitsForUnconfirmedDropsOfTheFirst) {
  const MasterProcess master({});
  HoldingAgent agent(to({master.address()}), 1);
  agent.put({"k"});
  agent.be_busy(1'000'000);
  const auto reader = tool(to({master.address()}));
  for (int i = 0; i < 2; ++i) {
    const auto reply = wait_for<wire::RemoveReply>([&](auto done) {
      reader->remove({{{hash_of("k"), UINT64_MAX}}}, now_ns() + 300'000'000, std::move(done));
    });
    EXPECT_TRUE(!reply || reply->unconfirmed == 1) << "removal " << i;
  }
  agent.be_busy(0);
  EXPECT_EQ(remove(*reader, {"k"}).unconfirmed, 0u);
  EXPECT_FALSE(agent.holds("k"));
}

TEST(MasterProcess, RemovalIsCompleteWhenAHolderIsGone) {
  const MasterProcess master({});
  HoldingAgent living(to({master.address()}), 1);
  HoldingAgent dying(to({master.address()}), 2);
  living.put({"k"});
  dying.put({"k", "l"});
  dying.die();
  const auto reader = tool(to({master.address()}));
  const auto reply = remove(*reader, {"k", "l"});
  EXPECT_EQ(reply.unconfirmed, 0u) << "fenced, so nobody reads from it";
  EXPECT_FALSE(living.holds("k"));
  EXPECT_EQ(found(*reader, {"k", "l"}), 0u);
}

TEST(MasterProcess, AnAbsentHolderDoesNotBringBackARemovedObject) {
  const MasterProcess master({});
  auto away = std::make_unique<HoldingAgent>(to({master.address()}), 1, 1);
  away->put({"k", "l"});
  away->die();
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove(*reader, {"k"}).unconfirmed, 0u);
  HoldingAgent back(to({master.address()}), 1, 2, {"k", "l"});
  ASSERT_TRUE(back.until_ready());
  EXPECT_FALSE(back.holds("k")) << "its report was told so";
  EXPECT_TRUE(back.holds("l"));
  EXPECT_EQ(found(*reader, {"k", "l"}), 1u);
}

TEST(MasterProcess, RemovalByPrefixAndByPatternReachesAllAgents) {
  const MasterProcess master({});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  one.put({"a1", "a2", "b1"});
  two.put({"a3", "b2", "c1"});
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove_matching(*reader, "a", wire::Match::Kind::kPrefix).removed, 3u);
  EXPECT_EQ(remove_matching(*reader, "^b[0-9]$", wire::Match::Kind::kRegex).removed, 2u);
  EXPECT_TRUE(two.holds("c1"));
  EXPECT_FALSE(one.holds("a1") || two.holds("a3") || one.holds("b1"));
  EXPECT_TRUE(until([&] { return stats(*reader).entries == 1; }));
}

TEST(MasterProcess, AnAbsentHolderDropsObjectsRemovedByPattern) {
  const MasterProcess master({});
  HoldingAgent here(to({master.address()}), 2);
  HoldingAgent away(to({master.address()}), 1, 1);
  away.put({"a1", "b1", "c1"});
  away.die();
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove_matching(*reader, "a", wire::Match::Kind::kPrefix).unconfirmed, 0u);
  EXPECT_EQ(remove_matching(*reader, "^b[0-9]$", wire::Match::Kind::kRegex).unconfirmed, 0u);
  here.put({"a1"});  // after the removal
  HoldingAgent back(to({master.address()}), 1, 2, {"a1", "b1", "c1"});
  ASSERT_TRUE(back.until_ready());
  EXPECT_FALSE(back.holds("a1") || back.holds("b1"));
  EXPECT_TRUE(back.holds("c1"));
  const auto answer = locate(*reader, {"a1", "b1", "c1"});
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->keys[0].holder_count, 1u);
  EXPECT_EQ(answer->holders_of(answer->keys[0])[0], 2u) << "what was put later stays";
  EXPECT_NE(answer->keys[1].state, Lookup::kFound);
  EXPECT_EQ(answer->keys[2].state, Lookup::kFound);
  // The member has heard of the removals, so its later puts stay after the next join.
  back.put({"a2"});
  back.die();
  HoldingAgent again(to({master.address()}), 1, 3, {"a2", "c1"});
  ASSERT_TRUE(again.until_ready());
  EXPECT_TRUE(again.holds("a2"));
}

TEST(MasterProcess, ALateMembersObjectsCountOnlyAfterItsMissedRemovals) {
  const MasterProcess master({"--recover-ms", "0"});
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove_matching(*reader, "a", wire::Match::Kind::kPrefix).unconfirmed, 0u);
  HoldingAgent late(to({master.address()}), 1, 1, {"a1", "c1"}, true);
  ASSERT_TRUE(until([&] { return late.has_stalled(); }));
  EXPECT_EQ(found(*reader, {"a1", "c1"}), 0u);
  // A put from before the member heard of the removal, and a put from after.
  const auto publish = [&](const std::string& key, std::uint64_t removals_seen) {
    const std::vector<PublishItem> items = {{hash_of(key), 1, 4096, {}, PublishItem::What::kHolds}};
    return wait_for<std::vector<Verdict>>(
        [&](auto done) { late.client().publish(items, removals_seen, soon(), std::move(done)); });
  };
  const auto before = publish("a2", 0);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(*before, std::vector<Verdict>{Verdict::kUncertain});
  const auto after = publish("a3", late.client().removals_seen());
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(*after, std::vector<Verdict>{Verdict::kAccepted});
  EXPECT_FALSE(late.client().ready());
  EXPECT_FALSE(readable(*reader, 1)) << "the master does not know the member's objects yet";
  late.stall_matching(false);
  ASSERT_TRUE(late.until_ready());
  EXPECT_TRUE(readable(*reader, 1));
  EXPECT_FALSE(late.holds("a1"));
  EXPECT_EQ(found(*reader, {"a1", "a2", "c1"}), 1u);
}

// Neither now nor when it comes back.
TEST(MasterProcess, AMemberThatDoesNotReportDelaysMissesAndRemovalsOnlyForAWhile) {
  const MasterProcess master({"--recover-ms", "0"});
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove_matching(*reader, "a", wire::Match::Kind::kPrefix).unconfirmed, 0u);
  {
    HoldingAgent stuck(to({master.address()}), 1, 1, {"c1"}, true);
    ASSERT_TRUE(until([&] { return stuck.has_stalled(); }));
    EXPECT_EQ(remove(*reader, {"none"}).keys.front(), Lookup::kRecovering);
    EXPECT_TRUE(until([&] { return !stats(*reader).recovering; }));
    EXPECT_EQ(remove(*reader, {"none"}).keys.front(), Lookup::kMiss);
    EXPECT_EQ(stats(*reader).reports_missing, 1u);
  }
  HoldingAgent again(to({master.address()}), 1, 2, {"c1"}, true);
  ASSERT_TRUE(until([&] { return again.has_stalled(); }));
  EXPECT_FALSE(stats(*reader).recovering);
  again.stall_matching(false);
  ASSERT_TRUE(again.until_ready());
  EXPECT_EQ(found(*reader, {"c1"}), 1u);
  // The member is one like any other from now on.
  again.die();
  EXPECT_EQ(remove_matching(*reader, "b", wire::Match::Kind::kPrefix).unconfirmed, 0u);
  const HoldingAgent third(to({master.address()}), 1, 3, {"c1"}, true);
  EXPECT_TRUE(until([&] { return stats(*reader).recovering; }));
}

TEST(MasterProcess, AnOrderToABusyAgentIsRepeated) {
  const MasterProcess master({});
  HoldingAgent agent(to({master.address()}), 1);
  agent.put({"k"});
  agent.be_busy(3);
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(remove(*reader, {"k"}).unconfirmed, 0u);
  EXPECT_FALSE(agent.holds("k"));
}

TEST(MasterProcess, AHotKeyGetsAnotherHolder) {
  const MasterProcess master({"--recover-ms", "0"});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  ASSERT_TRUE(one.until_ready() && two.until_ready());
  one.put({"hot", "cold"});
  const auto reader = tool(to({master.address()}));
  const std::vector<std::string> often(500, "hot");
  EXPECT_TRUE(until([&] { return found(*reader, often) == 500 && two.holds("hot"); }));
  EXPECT_FALSE(two.holds("cold"));
}

TEST(MasterProcess, ListingsArePagedAndMerged) {
  const MasterProcess master({});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  one.put(names("x", 300));
  two.put(names("x", 200));  // the same keys: each is listed once
  two.put(names("y", 100));
  const auto reader = tool(to({master.address()}));
  wire::Match match;
  match.limit = 64;
  std::vector<std::string> listed;
  for (bool more = true; more;) {
    const auto page = wait_for<wire::ListAnswer>(
        [&](auto done) { reader->list(match, soon(), std::move(done)); });
    ASSERT_TRUE(page.has_value()) << page.error().to_string();
    ASSERT_EQ(page->unconfirmed, 0u);
    ASSERT_TRUE(!page->more || !page->keys.empty());
    for (const wire::ListedKey& key : page->keys) listed.push_back(key.key);
    more = page->more;
    if (more) match.after = listed.back();
  }
  auto expected = names("x", 300);
  const auto ys = names("y", 100);
  expected.insert(expected.end(), ys.begin(), ys.end());
  std::ranges::sort(expected);
  EXPECT_EQ(listed, expected);
}

TEST(MasterProcess, ReplicasAreMadeAndRepairedWhenAHolderDies) {
  const MasterProcess master({"--recover-ms", "0"});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  HoldingAgent three(to({master.address()}), 3);
  ASSERT_TRUE(one.until_ready() && two.until_ready() && three.until_ready());
  const auto keys = names("r", 20);
  one.put(keys, 2);
  two.put(keys, 2);
  one.die();
  EXPECT_TRUE(until([&] { return three.copies() == 20; }));
  const auto reader = tool(to({master.address()}));
  EXPECT_TRUE(until([&] {
    const auto answer = locate(*reader, keys);
    return answer && std::ranges::all_of(answer->keys,
                                         [](const Located& key) { return key.holder_count == 2; });
  }));
}

TEST(MasterProcess, ADrainedMembersObjectsMoveAndAreReleased) {
  const MasterProcess master({"--recover-ms", "0"});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  ASSERT_TRUE(one.until_ready() && two.until_ready());
  const auto keys = names("d", 30);
  one.put(keys);
  const auto reader = tool(to({master.address()}));
  EXPECT_TRUE(until([&] {
    wait_for<wire::DrainAnswer>(
        [&](auto done) { reader->drain({.node = 1}, soon(), std::move(done)); });
    return std::ranges::all_of(keys,
                               [&](const auto& key) { return two.holds(key) && !one.holds(key); });
  }));
}

// A holder that is ordered to drop an object, and has not answered yet, does not count as a holder.
TEST(MasterProcess, TwoDrainsInARowKeepAHolderOfEachObject) {
  const MasterProcess master({"--recover-ms", "0"});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  ASSERT_TRUE(one.until_ready() && two.until_ready());
  one.put({"k"});
  two.put({"k"});
  const auto reader = tool(to({master.address()}));
  const auto drain = [&](NodeId node, bool stop) {
    return wait_for<wire::DrainAnswer>(
        [&](auto done) { reader->drain({.node = node, .stop = stop}, soon(), std::move(done)); });
  };
  constexpr int kBusy = 1'000'000;
  one.be_busy(kBusy);
  drain(1, false);
  ASSERT_TRUE(until([&] { return one.busy_left() < kBusy; }));  // the order has been sent
  drain(1, true);
  ASSERT_TRUE(until([&] {
    const auto progress = drain(2, false);
    return progress && (progress->copied > 0 || !two.holds("k"));
  }));
  EXPECT_TRUE(two.holds("k"));
  one.be_busy(0);
  EXPECT_TRUE(until([&] { return !one.holds("k") || !two.holds("k"); }));
  EXPECT_TRUE(one.holds("k") || two.holds("k"));
}

TEST(MasterProcess, PlacementPrefersTheAskingHost) {
  const MasterProcess master({});
  HoldingAgent one(to({master.address()}), 1);
  HoldingAgent two(to({master.address()}), 2);
  ASSERT_TRUE(one.until_ready() && two.until_ready());
  const auto reader = tool(to({master.address()}));
  wire::ChooseHolders request;
  request.items.push_back({hash_of("p"), 4096, 2});
  request.host = 2;
  const auto answer = wait_for<wire::ChooseHoldersAnswer>(
      [&](auto done) { reader->choose_holders(request, soon(), std::move(done)); });
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->nodes.at(0), (std::vector<NodeId>{2, 1}));
}

TEST(MasterProcess, AnOlderIncarnationIsFenced) {
  const MasterProcess master({});
  HoldingAgent old(to({master.address()}), 1, 1);
  ASSERT_TRUE(old.until_ready());
  old.put({"k"});
  HoldingAgent fresh(to({master.address()}), 1, 2);
  ASSERT_TRUE(fresh.until_ready());
  EXPECT_TRUE(until([&] { return old.fenced(); }));
  const auto reader = tool(to({master.address()}));
  EXPECT_EQ(found(*reader, {"k"}), 0u) << "what it held died with its incarnation";
}

TEST(MasterProcess, WrongAndMissingKeysAreRefused) {
  const conformance::TempDirectory directory;
  const std::string path = directory.file("key", std::string(64, 'k'));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const MasterProcess master({"--cluster-key-file", path});
  MasterClientOptions right = to({master.address()});
  right.key = rpc::key_of('x');
  const auto wrong = tool(right);
  const auto missing = tool(to({master.address()}));
  right.key = *auth::ClusterKey::from_file(path);
  const auto member = tool(right);
  EXPECT_EQ(stats(*member).links, 1u);
  EXPECT_TRUE(until([&] { return stats(*member).refused_links >= 2; }));
  EXPECT_FALSE(wrong->ready());
  EXPECT_FALSE(missing->ready());
  EXPECT_EQ(stats(*member).links, 1u);
}

TEST(MasterProcess, ARemovalEndsWhileRedisIsFullAndAnAgentAway) {
  const conformance::StoreServer redis(conformance::redis_command());
  // A full Redis elects no leader, so the leader must not lose its lease on a machine that stalls.
  const MasterProcess master(
      {"--cluster-store", "redis://" + redis.host(), "--leader-ttl-ms", "60000"});
  HoldingAgent here(to({master.address()}), 1);
  HoldingAgent away(to({master.address()}), 2);
  here.put(names("k", 3));
  const auto reader = tool(to({master.address()}));
  ASSERT_TRUE(away.until_ready());
  away.die();
  ASSERT_TRUE(until([&] { return stats(*reader).members == 1; }));
  conformance::redis_cli(redis.port(), {"config", "set", "maxmemory", "1"});
  EXPECT_EQ(remove(*reader, {"k0"}).unconfirmed, 1u) << "the agent that is away";
  EXPECT_EQ(remove_matching(*reader, "k1", wire::Match::Kind::kPrefix).unconfirmed, 1u);
  EXPECT_FALSE(here.holds("k0") || here.holds("k1"));
  conformance::redis_cli(redis.port(), {"config", "set", "maxmemory", "0"});
  EXPECT_EQ(remove(*reader, {"k2"}).unconfirmed, 0u);
}

TEST(MasterProcess, ARedisWhoseReplicasMayLackWritesIsRefused) {
  const conformance::StoreServer redis(conformance::redis_command());
  const conformance::StoreServer replica(conformance::redis_command());
  conformance::redis_cli(replica.port(), {"replicaof", "127.0.0.1", std::to_string(redis.port())});
  ASSERT_TRUE(until([&] {
    const std::string said = conformance::redis_cli(replica.port(), {"info", "replication"});
    return said.find("master_link_status:up") != std::string::npos;
  }));
  const auto run = [&] {
    return run_master_once({"--cluster-store", "redis://" + redis.host(), "--listen",
                            "127.0.0.1:" + std::to_string(conformance::free_port())});
  };
  // A master starts if the store does not answer at once.
  std::string said;
  EXPECT_TRUE(until([&] {
    const auto [status, output] = run();
    said = output;
    return status == 1;
  }));
  EXPECT_THAT(said, testing::HasSubstr("config set min-replicas-to-write 1"));
  conformance::redis_cli(redis.port(), {"config", "set", "min-replicas-to-write", "1"});
  EXPECT_EQ(run().first, 0);
}

// The revisions of a wiped etcd begin at 1.
TEST(MasterProcess, AWipedEtcdIsFollowedByAHigherEpoch) {
  conformance::StoreServer etcd(conformance::etcd_command());
  const std::string store = "etcd://" + etcd.host();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE((*open_cluster_store(store, "default"))->put("k", "v", kNoLease, soon()));
  }
  const MasterProcess master({"--cluster-store", store});
  HoldingAgent agent(to({master.address()}), 1);
  agent.put(names("k", 3));
  const std::uint64_t before = agent.client().epoch();
  etcd.kill_hard();
  std::filesystem::remove_all(etcd.directory() + "/data");
  etcd.start();
  EXPECT_TRUE(until([&] { return agent.client().epoch() > before; }));
  ASSERT_TRUE(agent.until_ready());
  EXPECT_EQ(found(*tool(to({master.address()})), names("k", 3), 20'000), 3u);
}

TEST(MasterProcess, UnsafeOptionsDoNotStart) {
  const auto open =
      run_master_once({"--listen", "0.0.0.0:" + std::to_string(conformance::free_port())});
  EXPECT_EQ(open.first, 1);
  EXPECT_NE(open.second.find("without a cluster key"), std::string::npos) << open.second;
  EXPECT_EQ(run_master_once({"--gone-ms", "1"}).first, 2);
  EXPECT_EQ(run_master_once({"--gone-ms", "500"}).first, 1) << "below suspect_ms";
  EXPECT_EQ(run_master_once({"--cluster-store", "http://127.0.0.1:1/metadata"}).first, 1);
}

TEST(MasterOptions, EveryRangeIsHeldAtBelowAndAbove) {
  const std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> ranges = {
      {"partitions", {1, 64}},      {"leader_ttl_ms", {200, 60'000}},
      {"recover_ms", {0, 600'000}}, {"heartbeat_ms", {10, 10'000}},
      {"suspect_ms", {30, 60'000}}, {"gone_ms", {50, 600'000}},
      {"max_nodes", {1, 4096}},     {"max_entries", {1024, 4ull << 30}},
      {"max_links", {1, 65'536}}};
  const auto taken = [](const std::string& name, std::uint64_t value) {
    const char* const none[] = {nullptr};
    return load_master_options("", {{name, std::to_string(value)}}, none).has_value();
  };
  for (const auto& row : master_option_rows()) {
    if (row.domain.kind != options::ValueKind::kCount) continue;
    const std::string name(row.name);
    ASSERT_TRUE(ranges.contains(name)) << name << " has no range above";
    const auto [lowest, highest] = ranges.at(name);
    EXPECT_TRUE(taken(name, lowest) && taken(name, highest)) << name;
    EXPECT_FALSE(taken(name, highest + 1)) << name;
    EXPECT_TRUE(lowest == 0 || !taken(name, lowest - 1)) << name;
  }
}

TEST(MasterOptions, EarlierNamesAndLevelsAreStillTaken) {
  const conformance::TempDirectory directory;
  const std::string config = directory.file(
      "master.toml", "store = 'redis://a'\nkey_file = 'cluster.key'\ntls_ca = 'ca.pem'\n");
  const char* const environment[] = {"MC_MASTER_KEY_FILE=/etc/mc/cluster.key", nullptr};
  const auto loaded =
      load_master_options(config, {{"log_level", "err"}, {"store", "etcd://b"}}, environment);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->cluster_store, "etcd://b");
  EXPECT_EQ(loaded->cluster_key_file, "/etc/mc/cluster.key");
  EXPECT_EQ(loaded->master_tls_ca, std::filesystem::path(config).parent_path() / "ca.pem");
  EXPECT_EQ(loaded->log_level, "error");
}

TEST(MasterOptions, EveryPathTakesARelativePath) {
  const char* const none[] = {nullptr};
  std::size_t paths = 0;
  for (const auto& row : master_option_rows()) {
    if (row.domain.kind != options::ValueKind::kPath) continue;
    ++paths;
    const auto loaded = load_master_options("", {{std::string(row.name), "p"}}, none);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_EQ(row.text_of(*loaded), std::filesystem::current_path() / "p") << row.name;
  }
  EXPECT_EQ(paths, 5u);
}

TEST(MasterProcess, EarlierNamesOfFlagsWorkAndWrongFlagsAreNamed) {
  const auto said = [](const std::vector<std::string>& flags) {
    const auto [status, text] = run_master_once(flags);
    EXPECT_EQ(status, 2) << text;
    return text;
  };
  EXPECT_EQ(run_master_once({"--store", "http://127.0.0.1:1/metadata"}).first, 1);
  EXPECT_THAT(said({"--store", "memory://", "--cluster-store", "memory://"}),
              testing::HasSubstr("store is an earlier name of cluster_store"));
  EXPECT_THAT(said({"--store"}), testing::HasSubstr("--store needs one value\n  try: mc-master"));
  EXPECT_THAT(said({"--nosuch"}), testing::HasSubstr("there is no option '--nosuch'\n  try: "));
  EXPECT_THAT(said({"--key-fil", "x"}), testing::HasSubstr("try: --cluster-key-file"));
  EXPECT_THAT(said({"word"}), testing::HasSubstr("'word' is one argument too many"));
}

TEST(MasterProcess, OptionsComeFromAFileThenTheEnvironmentThenFlags) {
  const conformance::TempDirectory directory;
  const auto file = [&](const std::string& text) { return directory.file("master.toml", text); };
  const auto refusal = [&](const std::vector<std::string>& flags) {
    const auto [status, said] = run_master_once(flags);
    EXPECT_EQ(status, 2) << said;
    return said;
  };
  // The refusal shows which value won.
  const std::string config = file("suspect_ms = 300\ngone_ms = 200\nheartbeat_ms = 100\n");
  EXPECT_EQ(run_master_once({"--config", config}).first, 1) << "gone before it is suspected";
  EXPECT_EQ(run_master_once({"--config", config, "--gone-ms", "499"}).first, 1) << "a short lease";
  EXPECT_EQ(run_master_once({"--config", config, "--gone-ms", "500", "--listen",
                             "127.0.0.1:" + std::to_string(conformance::free_port())})
                .first,
            0);
  ASSERT_EQ(::setenv("MC_MASTER_GONE_MS", "5", 1), 0);
  EXPECT_THAT(refusal({"--config", config}), testing::HasSubstr("environment MC_MASTER_GONE_MS"));
  ASSERT_EQ(::setenv("MC_MASTER_GONE_MS", "", 1), 0);
  EXPECT_EQ(run_master_once({"--config", config}).first, 1) << "an empty one is taken back";
  ASSERT_EQ(::unsetenv("MC_MASTER_GONE_MS"), 0);
  ASSERT_EQ(::setenv("MC_MASTER_SHARES", "65", 1), 0);
  EXPECT_THAT(refusal({}), testing::HasSubstr("environment MC_MASTER_SHARES"));
  ASSERT_EQ(::unsetenv("MC_MASTER_SHARES"), 0);
  ASSERT_EQ(::setenv("MC_MASTER_LISTNE", "x", 1), 0);
  EXPECT_THAT(refusal({}), testing::HasSubstr("did you mean 'MC_MASTER_LISTEN'"));
  ASSERT_EQ(::unsetenv("MC_MASTER_LISTNE"), 0);
  EXPECT_THAT(refusal({"--config", file("gone_mz = 5\n")}),
              testing::AllOf(testing::HasSubstr("line 1"), testing::HasSubstr("gone_ms")));
  EXPECT_THAT(refusal({"--config", file("gone_ms = 5\n")}),
              testing::AllOf(testing::HasSubstr("line 1"), testing::HasSubstr("50 to 600000")));
  EXPECT_THAT(refusal({"--config", file("shares = 65\n")}), testing::HasSubstr("partitions = '65'"))
      << "an earlier name of the option";
  EXPECT_THAT(refusal({"--config", file("[[namespace]]\nname = 'a'\n")}),
              testing::HasSubstr("at the agents"));
  EXPECT_THAT(refusal({"--config", "/nowhere/master.toml"}), testing::HasSubstr("/nowhere"));
}

TEST(MasterProcess, TheExampleConfigurationNamesOptionsAndTheirDefaults) {
  std::ifstream example(MC_SOURCE_DIR "/systemd/master.toml");
  ASSERT_TRUE(example);
  // All lines that look like options are set at once; the later line of a name wins.
  std::map<std::string, std::string> values;
  for (std::string line; std::getline(example, line);) {
    static const std::regex option("#([a-z_]+ = .*)");
    std::smatch found;
    if (!std::regex_match(line, found, option)) continue;
    const std::string text = found[1];
    values[text.substr(0, text.find(' '))] = text;
  }
  EXPECT_GE(values.size(), 10u);
  std::string config;
  for (const auto& [name, text] : values) config += text + "\n";
  const conformance::TempDirectory directory;
  const auto [status, said] =
      run_master_once({"--config", directory.file("master.toml", config), "--listen",
                       "127.0.0.1:" + std::to_string(conformance::free_port())});
  EXPECT_EQ(status, 0) << said;
}

class MasterPair : public testing::Test {
 protected:
  MasterPair()
      : redis_(conformance::redis_command()),
        store_("redis://" + redis_.host()),
        first_({"--cluster-store", store_}) {
    const auto reader = tool(to({}, store_));
    EXPECT_TRUE(until([&] { return reader->ready(); })) << "the first one leads";
    second_ = std::make_unique<MasterProcess>(std::vector<std::string>{"--cluster-store", store_});
  }
  conformance::StoreServer redis_;
  const std::string store_;
  MasterProcess first_;
  std::unique_ptr<MasterProcess> second_;
};

TEST_F(MasterPair, AStandbyNamesTheLeader) {
  const auto reader = tool(to({second_->address()}));
  EXPECT_TRUE(until([&] { return stats(*reader).links > 0; })) << "by the standby's hint alone";
}

TEST_F(MasterPair, AStandbyLeadsAfterTheLeadersDeathAndNothingIsLost) {
  HoldingAgent agent(to({}, store_), 1);
  const auto keys = names("k", 2000);
  agent.put(keys);
  const std::uint64_t before = agent.client().epoch();
  const std::uint64_t died_ns = now_ns();
  first_.kill_hard();
  ASSERT_TRUE(until([&] { return agent.client().epoch() > before && agent.client().ready(); }));
  RecordProperty("takeover_ms", static_cast<int>((now_ns() - died_ns) / 1'000'000));
  const auto reader = tool(to({}, store_));
  EXPECT_EQ(found(*reader, keys, 20'000), keys.size());
}

TEST_F(MasterPair, AResumedFormerLeaderIsNotBelieved) {
  HoldingAgent agent(to({}, store_), 1);
  agent.put({"k"});
  const auto slow = tool(to({first_.address()}));
  ASSERT_GT(stats(*slow).links, 0u);
  first_.pause(true);
  const auto reader = tool(to({second_->address()}));
  ASSERT_TRUE(until([&] { return reader->epoch() > slow->epoch() || stats(*reader).links > 0; }));
  ASSERT_TRUE(agent.until_ready());
  first_.pause(false);
  // The link is still open. The former leader refuses the next call, and the client moves to the
  // leader.
  EXPECT_GT(stats(*slow).links, 0u);
  EXPECT_EQ(slow->epoch(), reader->epoch());
  EXPECT_EQ(found(*slow, {"k"}, 20'000), 1u);
}

// The leaders of two separate clusters. The earlier leader's epoch is lower, and the full store
// prevents a higher epoch.
TEST(MasterProcess, AnswersOfALowerEpochAreRefused) {
  const conformance::StoreServer redis(conformance::redis_command());
  // A full Redis elects no leader anew.
  MasterProcess stale({"--cluster-store", "redis://" + redis.host(), "--leader-ttl-ms", "60000"});
  const auto first = tool(to({stale.address()}));
  const std::uint64_t stale_epoch = (stats(*first), first->epoch());
  MasterProcess leader({});
  // Until the leader leads, its clients use the other master.
  ASSERT_GT(stats(*tool(to({leader.address()}))).links, 0u);
  const auto client = tool(to({leader.address(), stale.address()}));
  ASSERT_GT(stats(*client).links, 0u);
  const std::uint64_t epoch = client->epoch();
  ASSERT_GT(epoch, stale_epoch);
  conformance::redis_cli(redis.port(), {"config", "set", "maxmemory", "1"});
  leader.kill_hard();
  std::atomic<int> answered{0};
  for (int i = 0; i < 20; ++i) {
    client->stats(now_ns() + kSecondNs,
                  [&](const Result<wire::StatsAnswer>& answer) { answered += answer.has_value(); });
  }
  EXPECT_TRUE(until([&] { return client->refused_epochs() >= 2; }));
  EXPECT_EQ(answered, 0) << "not one answer of the stale leader was believed";
  leader.start();
  EXPECT_GT(stats(*client).links, 0u);
  EXPECT_GE(client->epoch(), epoch);
}

}  // namespace
}  // namespace mc::metadata
