// SPDX-License-Identifier: Apache-2.0
//
// Puts on a host without room, and puts for which the client names a host: another host holds the
// object.
#include "cluster/cluster_fixture.h"

#include "libmc/base/clock.h"
#include "libmc/client/admin.h"

namespace mc::cluster {
namespace {

using conformance::AgentProcess;
using conformance::slice;

constexpr std::size_t kSmall = 8 * kMiB;
constexpr std::size_t kObject = 512 * 1024;

class Placement : public ClusterTest {
 protected:
  // The last agent has a pool of 8 MiB, the others have 64.
  void start_with_small_host(std::size_t others, const AgentOptions& also = {}) {
    start(others);
    start_small_host(also);
  }
  void start_small_host(const AgentOptions& also = {}) {
    options_["pool_bytes"] = options_["max_pool_bytes"] = "8MiB";
    options_["session_quota_bytes"] = "128MiB";
    for (const auto& [name, value] : also) options_[name] = value;
    small_ = agents_.size();
    agents_.push_back(std::make_unique<AgentProcess>());
    start_agent(small_);
    ASSERT_TRUE(until(
        [&] { return ask(small_, "status")["cluster"]["members"].asUInt64() == agents_.size(); }));
  }
  std::uint64_t placed() { return counter(small_, "elsewhere", "placed"); }

  static std::string key_of(std::size_t number) { return "pinned " + std::to_string(number); }
  mc_status put_pinned(std::size_t number) {
    mc_put_options hard = MC_PUT_OPTIONS_INIT;
    hard.pin = MC_PIN_HARD;
    const std::string key = key_of(number);
    return put(small_, key, content(key, kObject), &hard);
  }
  // Puts objects until the small pool has no room for another object. Returns the count.
  std::size_t fill() {
    for (std::size_t i = 0; i < 3 * kSmall / kObject; ++i) {
      EXPECT_EQ(put_pinned(i), MC_OK)
          << mc_last_error() << ask(small_, "status")["cluster"].toStyledString();
      if (placed() > 0) return i + 1;
    }
    ADD_FAILURE() << "the small pool is never full: "
                  << ask(small_, "status")["cluster"].toStyledString();
    return 0;
  }
  std::size_t small_ = 0;
};

TEST_F(Placement, AnObjectWithoutRoomIsHeldByAnotherHost) {
  start_with_small_host(2);
  std::size_t count = fill();
  for (const std::size_t end = count + 20; count < end; ++count) {
    ASSERT_EQ(put_pinned(count), MC_OK) << mc_last_error();
  }
  EXPECT_GE(placed(), 20u);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t reader = 0; reader < small_; ++reader) {
      EXPECT_TRUE(get(reader, key_of(i)) == content(key_of(i), kObject)) << i << " at " << reader;
    }
    EXPECT_TRUE(exists(small_, key_of(i)));
  }
  // A repeated put changes nothing.
  const std::uint64_t before = placed();
  EXPECT_EQ(put_pinned(count - 1), MC_OK);
  EXPECT_EQ(placed(), before);
  // The full host itself reads these objects when the host's own objects may be evicted.
  ASSERT_EQ(mc_set_pin(client(small_), slice(key_of(0)), MC_PIN_NONE, 0, 0), MC_OK);
  EXPECT_TRUE(get(small_, key_of(count - 1)) == content(key_of(count - 1), kObject));
  // The full host removes an object everywhere.
  ASSERT_EQ(mc_remove(client(small_), slice(key_of(count - 1)), 0), MC_OK);
  EXPECT_EQ(get(0, key_of(count - 1)), "<MC_NOT_FOUND>");
  EXPECT_EQ(get(1, key_of(count - 1)), "<MC_NOT_FOUND>");
}

TEST_F(Placement, ColdObjectsAreEvictedFirst) {
  start_with_small_host(1);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string key = "cold " + std::to_string(i);
    ASSERT_EQ(put(small_, key, content(key, kObject)), MC_OK) << mc_last_error();
  }
  EXPECT_EQ(counter(small_, "elsewhere", "asked"), 0u);
}

TEST_F(Placement, AnObjectLargerThanThePoolIsHeldWhereItFits) {
  start_with_small_host(2);
  const std::string large = content("large", 20 * kMiB);
  ASSERT_EQ(put(small_, "large", large), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(0, "large") == large);
  EXPECT_TRUE(get(1, "large") == large);

  // The object is replaced at the holder, written in place, and put asynchronously.
  const std::string other = content("other", 19 * kMiB);
  mc_put_options upsert = MC_PUT_OPTIONS_INIT;
  upsert.upsert = 1;
  ASSERT_EQ(put(small_, "large", other, &upsert), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(0, "large") == other);
  EXPECT_TRUE(get(1, "large") == other);

  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client(small_), large.size(), 0, &reservation), MC_OK) << mc_last_error();
  mc_span span{};
  ASSERT_EQ(mc_reservation_spans(reservation, &span, 1), 1u);
  large.copy(static_cast<char*>(span.data), span.size);
  ASSERT_EQ(mc_commit(reservation, slice("in place"), large.size(), nullptr), MC_OK)
      << mc_last_error();
  EXPECT_TRUE(get(0, "in place") == large);

  mc_cq* queue = nullptr;
  ASSERT_EQ(mc_cq_create(client(small_), &queue), MC_OK);
  const mc_slice value = slice(large);
  mc_put_item item{slice("async"), &value, 1, {nullptr, 0}, MC_OK};
  ASSERT_EQ(mc_put_async(client(small_), queue, &item, 1, nullptr, 5, nullptr), MC_OK)
      << mc_last_error();
  mc_completion done{};
  std::size_t count = 0;
  ASSERT_EQ(mc_cq_wait(queue, &done, 1, &count, kWatchdogNs), MC_OK);
  EXPECT_EQ(done.status, MC_OK);
  mc_cq_destroy(queue);
  EXPECT_TRUE(get(1, "async") == large);
  EXPECT_EQ(placed(), 4u);
}

TEST_F(Placement, IsolatedClientsPutElsewhereToo) {
  options_ = {{"mode", "isolated"}, {"isolated_allow_same_user", "true"}};
  start(1, options_);
  start_small_host();
  std::size_t count = fill();
  for (const std::size_t end = count + 5; count < end; ++count) {
    ASSERT_EQ(put_pinned(count), MC_OK) << mc_last_error();
  }
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(get(0, key_of(i)) == content(key_of(i), kObject)) << i;
  }
}

TEST_F(Placement, AnObjectBeyondTheObjectLimitIsHeldByAnotherHostToo) {
  for (const char* const mode : {"direct", "isolated"}) {
    SCOPED_TRACE(mode);
    agents_.clear();
    start(1, {{"mode", mode}, {"isolated_allow_same_user", "true"}});
    // The pool has room, but may have only four objects.
    start_small_host(
        {{"pool_bytes", "32MiB"}, {"max_pool_bytes", "32MiB"}, {"capacity_bytes", "2MiB"}});
    for (std::size_t i = 0; i < 10; ++i) ASSERT_EQ(put_pinned(i), MC_OK) << mc_last_error();
    EXPECT_EQ(placed(), 6u);
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_TRUE(get(0, key_of(i)) == content(key_of(i), kObject)) << i;
    }
    close_clients(0);
    close_clients(1);
  }
}

TEST_F(Placement, AHostThatDiesWhileItTakesAnObjectIsFollowedByTheNext) {
  start(1);
  agents_.push_back(std::make_unique<AgentProcess>());
  agents_[1]->arm("fetch.before_read=kill");
  start_agent(1);
  start_small_host();
  // Hosts are chosen by key, so some key soon goes to the second host.
  std::size_t count = 0;
  for (; count < 200 && counter(small_, "elsewhere", "lost") == 0; ++count) {
    ASSERT_EQ(put_pinned(count), MC_OK) << mc_last_error();
  }
  agents_[1]->wait_until_killed();
  EXPECT_GE(counter(small_, "elsewhere", "lost"), 1u);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(get(0, key_of(i)) == content(key_of(i), kObject)) << i;
  }
}

TEST_F(Placement, AnAcknowledgedObjectOutlivesItsWriter) {
  start_with_small_host(2);
  const std::size_t first = fill();
  std::size_t count = first;
  for (const std::size_t end = count + 10; count < end; ++count) {
    ASSERT_EQ(put_pinned(count), MC_OK) << mc_last_error();
  }
  close_clients(small_);
  agents_[small_]->kill_hard();
  for (std::size_t i = first - 1; i < count; ++i) {
    for (std::size_t reader = 0; reader < small_; ++reader) {
      EXPECT_TRUE(get(reader, key_of(i)) == content(key_of(i), kObject)) << i << " at " << reader;
    }
  }
}

TEST_F(Placement, APutFailsByItsDeadlineIfNoHostHasRoom) {
  start(0);
  start_small_host();
  mc_put_options hard = MC_PUT_OPTIONS_INIT;
  hard.pin = MC_PIN_HARD;
  hard.timeout_ns = kSecondNs * 2 / 5;
  std::size_t count = 0;
  mc_status status = MC_OK;
  // On a slow machine a put may meet its deadline before the agent knows that no host has room.
  ASSERT_TRUE(until([&] {
    const std::string key = key_of(count);
    status = put(small_, key, content(key, kObject), &hard);
    if (status == MC_OK) ++count;
    return status == MC_NO_SPACE || count > 3 * kSmall / kObject;
  })) << mc_status_name(status);
  EXPECT_EQ(status, MC_NO_SPACE);
  EXPECT_GE(counter(small_, "elsewhere", "nobody"), 1u);
  // New room on this host is used as ever.
  hard.timeout_ns = kWatchdogNs;
  ASSERT_EQ(mc_remove(client(small_), slice(key_of(0)), 0), MC_OK);
  EXPECT_EQ(put(small_, key_of(count), content(key_of(count), kObject), &hard), MC_OK)
      << mc_last_error();
  // An object that fits in no pool is too large, not late.
  const std::string large = content("large", 20 * kMiB);
  EXPECT_EQ(put(small_, "large", large, &hard), MC_TOO_LARGE) << mc_last_error();
}

class NamedHost : public ClusterTest {
 protected:
  std::uint64_t node_of(std::size_t agent) {
    return std::stoull(ask(agent, "status")["node_id"].asString());
  }
  std::vector<std::uint64_t> holders_of(const std::string& key) {
    Json::Value request;
    request["key"] = key;
    std::vector<std::uint64_t> nodes;
    const Json::Value found = ask(0, "where", request);
    for (const Json::Value& holder : found["holders"]) {
      nodes.push_back(std::stoull(holder["node"].asString()));
    }
    return nodes;
  }
  mc_status put_for(std::uint64_t node, const std::string& key, const std::string& value,
                    bool upsert = false) {
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.host = node;
    options.upsert = upsert ? 1 : 0;
    return put(0, key, value, &options);
  }
};

TEST_F(NamedHost, HoldsTheObjectsOfOtherHostsClients) {
  for (const char* const mode : {"direct", "isolated"}) {
    SCOPED_TRACE(mode);
    agents_.clear();
    start(3, {{"mode", mode}, {"isolated_allow_same_user", "true"}});
    const std::uint64_t here = node_of(0), there = node_of(2);
    using Nodes = std::vector<std::uint64_t>;
    ASSERT_EQ(put_for(there, "a", content("a", kObject)), MC_OK) << mc_last_error();
    EXPECT_EQ(holders_of("a"), Nodes{there});
    ASSERT_EQ(put_for(here, "b", content("b", kObject)), MC_OK) << mc_last_error();
    EXPECT_EQ(holders_of("b"), Nodes{here});
    // A batch, from memory that the agent shares.
    void* memory = nullptr;
    ASSERT_EQ(mc_alloc(client(0), kObject, &memory), MC_OK) << mc_last_error();
    const std::string shared = content("shared", kObject);
    shared.copy(static_cast<char*>(memory), kObject);
    const std::string other = content("other", 100);
    const mc_slice values[] = {{memory, kObject}, slice(other)};
    mc_put_item items[] = {{slice("c"), &values[0], 1, {nullptr, 0}, MC_OK},
                           {slice("d"), &values[1], 1, {nullptr, 0}, MC_OK}};
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.host = there;
    ASSERT_EQ(mc_put_batch(client(0), items, 2, &options), MC_OK) << mc_last_error();
    EXPECT_EQ(holders_of("c"), Nodes{there});
    EXPECT_EQ(holders_of("d"), Nodes{there});
    EXPECT_TRUE(get(1, "c") == shared);
    EXPECT_TRUE(get(0, "d") == other);
    // An existing object stays where the object is; an upsert moves the object.
    ASSERT_EQ(put_for(there, "b", content("new", kObject)), MC_OK) << mc_last_error();
    ASSERT_EQ(put_for(here, "a", content("new", kObject)), MC_OK) << mc_last_error();
    EXPECT_TRUE(get(1, "b") == content("b", kObject));
    EXPECT_TRUE(get(1, "a") == content("a", kObject));
    ASSERT_EQ(put_for(there, "b", content("new", kObject), true), MC_OK) << mc_last_error();
    EXPECT_EQ(holders_of("b"), Nodes{there});
    EXPECT_TRUE(get(0, "b") == content("new", kObject));
    for (std::size_t i = 0; i < 3; ++i) close_clients(i);
  }
}

TEST_F(NamedHost, WithoutRoomOrAwayLeavesTheObjectHere) {
  start(2, {{"pool_bytes", "64MiB"}, {"max_pool_bytes", "64MiB"}});
  const std::uint64_t here = node_of(0);
  ASSERT_EQ(put_for(12345, "unknown", content("unknown", kObject)), MC_OK) << mc_last_error();
  EXPECT_EQ(holders_of("unknown"), std::vector<std::uint64_t>{here});
  // The object is larger than the other pool, or than the client's staging memory.
  options_["pool_bytes"] = options_["max_pool_bytes"] = "8MiB";
  agents_.push_back(std::make_unique<AgentProcess>());
  start_agent(2);
  wait_until_joined();
  const std::uint64_t small = node_of(2);
  ASSERT_EQ(put_for(small, "large", content("large", 20 * kMiB)), MC_OK) << mc_last_error();
  EXPECT_EQ(holders_of("large"), std::vector<std::uint64_t>{here});
  close_clients(2);
  agents_[2]->kill_hard();
  ASSERT_EQ(put_for(small, "away", content("away", kObject)), MC_OK) << mc_last_error();
  EXPECT_EQ(holders_of("away"), std::vector<std::uint64_t>{here});
}

TEST_F(NamedHost, IsRefusedForGroupsAndReservations) {
  start(2);
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.host = node_of(1);
  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client(0), 100, 0, &reservation), MC_OK) << mc_last_error();
  EXPECT_EQ(mc_commit(reservation, slice("a"), 100, &options), MC_INVALID_ARGUMENT);
  EXPECT_NE(std::string(mc_last_error()).find("host"), std::string::npos) << mc_last_error();
  ASSERT_EQ(mc_group_begin(client(0), &options.group), MC_OK);
  EXPECT_EQ(mc_put(client(0), slice("b"), slice("value"), &options), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_group_commit(options.group, 0), MC_GROUP_ABORTED);
  EXPECT_FALSE(exists(0, "a"));
  EXPECT_FALSE(exists(0, "b"));
}

class Relocation : public NamedHost {
 protected:
  // Waits for the end of the task, and returns its state.
  std::string ended(std::size_t agent, const Json::Value& request) {
    Json::Value question, found;
    question["task"] = ask(0, request["verb"].asString(), request)["task"];
    EXPECT_TRUE(until([&] {
      found = ask(agent, "task", question);
      return found["state"] == "done" || found["state"] == "failed";
    })) << found.toStyledString();
    return found["state"].asString();
  }
  static Json::Value copy(const std::string& key, const std::vector<std::uint64_t>& targets) {
    Json::Value request;
    request["verb"] = "copy";
    request["key"] = key;
    for (const std::uint64_t target : targets) request["targets"].append(Json::UInt64{target});
    return request;
  }
  static Json::Value move(const std::string& key, std::uint64_t source, std::uint64_t target) {
    Json::Value request;
    request["verb"] = "move";
    request["key"] = key;
    request["source"] = Json::UInt64{source};
    request["target"] = Json::UInt64{target};
    return request;
  }
  mc_status refusal(const Json::Value& request) {
    const auto answer = client::admin_call(agents_[0]->socket(), request, kWatchdogNs);
    return answer ? MC_OK : answer.error().code();
  }
};

TEST_F(Relocation, CopiesAndMovesAnObjectBetweenHosts) {
  start(3, {},
        {"--cluster-store", "memory://", "--recover-ms", option_time(100), "--partitions", "2"});
  std::vector<std::uint64_t> nodes;
  for (std::size_t i = 0; i < 3; ++i) nodes.push_back(node_of(i));
  for (int i = 0; i < 4; ++i) {  // keys of both partitions
    const std::string key = "key " + std::to_string(i);
    ASSERT_EQ(put(0, key, content(key, kObject)), MC_OK) << mc_last_error();
    EXPECT_EQ(ended(2, move(key, nodes[0], nodes[1])), "done");
    EXPECT_EQ(holders_of(key), std::vector<std::uint64_t>{nodes[1]});
    EXPECT_EQ(ended(1, copy(key, {nodes[0], nodes[2]})), "done");
    EXPECT_EQ(holders_of(key).size(), 3u);
    EXPECT_TRUE(get(0, key) == content(key, kObject));
  }
  const std::string second = std::to_string(nodes[1]), third = std::to_string(nodes[2]);
  ASSERT_EQ(put(0, "by mcctl", "value"), MC_OK);
  EXPECT_EQ(mcctl(1, "copy 'by mcctl' " + second + " " + third), "copy of by mcctl: done\n");
  EXPECT_EQ(mcctl(1, "move 'by mcctl' " + std::to_string(nodes[0]) + " " + second),
            "move of by mcctl: done\n");
  EXPECT_EQ(holders_of("by mcctl").size(), 2u);
  EXPECT_NE(mcctl(1, "copy none " + second).find("no host holds the key"), std::string::npos);
  EXPECT_EQ(refusal(copy("none", {nodes[1]})), MC_NOT_FOUND);
  EXPECT_EQ(refusal(copy("key 0", {12345})), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(move("key 0", nodes[1], nodes[1])), MC_INVALID_ARGUMENT);
  // A target without room.
  options_["pool_bytes"] = options_["max_pool_bytes"] = "8MiB";
  agents_.push_back(std::make_unique<AgentProcess>());
  start_agent(3);
  wait_until_joined();
  ASSERT_EQ(put(0, "large", content("large", 20 * kMiB)), MC_OK) << mc_last_error();
  EXPECT_EQ(ended(0, move("large", nodes[0], node_of(3))), "failed");
  EXPECT_EQ(holders_of("large"), std::vector<std::uint64_t>{nodes[0]});
  // A master that begins to lead does not know the tasks of the last one.
  Json::Value question;
  question["verb"] = "task";
  question["task"] = ask(0, "copy", copy("key 0", {nodes[2]}))["task"];
  master_->kill_hard();
  master_->start();
  EXPECT_TRUE(until([&] { return refusal(question) == MC_NOT_FOUND; }));
}

}  // namespace
}  // namespace mc::cluster
