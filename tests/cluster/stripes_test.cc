// SPDX-License-Identifier: Apache-2.0
//
// Large objects in stripes on several hosts. Every client sees a single object, complete or absent,
// whichever process dies.
#include "cluster/stripes_fixture.h"

namespace mc::cluster {
namespace {

using conformance::AgentProcess;
using conformance::slice;

TEST_F(Stripes, AreOneObjectForEveryHost) {
  start_striping(4);
  const std::string value = content("large", kLarge);
  ASSERT_EQ(put(0, "large", value), MC_OK) << mc_last_error();
  EXPECT_EQ(stripes(0, "puts"), 1u);
  EXPECT_EQ(stripes_here(), 8u);
  EXPECT_EQ(stripes(0, "stripes_here"), 0u) << "its writer's host holds none";
  EXPECT_EQ(holders(0, "large"), 3u);
  for (std::size_t agent = 0; agent < 4; ++agent) {
    EXPECT_TRUE(get(agent, "large") == value) << agent;
    EXPECT_TRUE(exists(agent, "large"));
    mc_stat_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(mc_stat(client(agent), slice("large"), &info), MC_OK) << mc_last_error();
    EXPECT_EQ(info.length, value.size());
    mc_view view;
    ASSERT_EQ(mc_get_view(client(agent), slice("large"), &view), MC_OK) << mc_last_error();
    EXPECT_EQ(view.size, value.size());
    mc_view_release(&view);
    Json::Value request;
    request["key"] = "large";
    const Json::Value found = ask(agent, "where", request);
    EXPECT_EQ(found["bytes"].asUInt64(), value.size());
    EXPECT_EQ(found["parts"].asUInt(), 3u);
    EXPECT_EQ(found["missing_parts"].asUInt(), 0u);
  }
  // Read a range of the object into a buffer.
  std::string part(1000, '\0');
  mc_span piece{part.data(), part.size()};
  mc_get_item item{slice("large"), &piece, 1, 3 * kMiB - 500, part.size(), MC_OK};
  ASSERT_EQ(mc_get_batch(client(3), &item, 1), MC_OK) << mc_last_error();
  EXPECT_EQ(item.length, part.size());
  EXPECT_TRUE(part == value.substr(3 * kMiB - 500, 1000));
  // A create of an existing key changes nothing. An upsert replaces the object completely.
  EXPECT_EQ(put(1, "large", content("other", kLarge)), MC_OK);
  EXPECT_TRUE(get(2, "large") == value);
  mc_put_options upsert = MC_PUT_OPTIONS_INIT;
  upsert.upsert = 1;
  const std::string other = content("other", kLarge + 3 * kMiB);
  ASSERT_EQ(put(1, "large", other, &upsert), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) EXPECT_TRUE(get(agent, "large") == other);
  EXPECT_TRUE(until([&] { return stripes_here() == 11; })) << stripes_here();
  // A small object replaces the large object, and the reverse.
  ASSERT_EQ(put(2, "large", "small", &upsert), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) EXPECT_EQ(get(agent, "large"), "small");
  EXPECT_TRUE(until([&] { return stripes_here() == 0; })) << stripes_here();
  ASSERT_EQ(put(3, "large", value, &upsert), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) EXPECT_TRUE(get(agent, "large") == value);
  ASSERT_EQ(mc_remove(client(1), slice("large"), 0), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 4; ++agent) {
    EXPECT_EQ(get(agent, "large"), "<MC_NOT_FOUND>");
    EXPECT_FALSE(exists(agent, "large"));
  }
  EXPECT_EQ(stripes_here(), 0u);
}

TEST_F(Stripes, HoldAnObjectThatIsLargerThanAnyPool) {
  // No stripe size is configured: stripes are the only way.
  start(4,
        {{"pool_bytes", "16MiB"}, {"max_pool_bytes", "16MiB"}, {"session_quota_bytes", "64MiB"}});
  options_["pool_bytes"] = options_["max_pool_bytes"] = "64MiB";
  const std::string value = content("large", 30 * kMiB);
  ASSERT_EQ(put(0, "large", value), MC_OK) << mc_last_error();
  EXPECT_EQ(stripes(0, "puts"), 1u);
  EXPECT_TRUE(exists(1, "large"));
  // No host has room for the whole object.
  EXPECT_EQ(get(1, "large"), "<MC_NO_SPACE>");
  EXPECT_GE(counter(1, "misses", "no_room"), 1u);
  EXPECT_TRUE(exists(1, "large")) << "a reader that has no room takes nothing away";
  agents_.push_back(std::make_unique<AgentProcess>());
  start_agent(4);
  EXPECT_TRUE(get(4, "large") == value);
  EXPECT_GE(stripes(4, "gathered"), 1u);
}

TEST_F(Stripes, GoWithTheirObjectWhenOneIsEvicted) {
  start_striping(3, {{"pool_bytes", "16MiB"}, {"max_pool_bytes", "16MiB"}});
  ASSERT_EQ(put(0, "large", content("large", kLarge)), MC_OK) << mc_last_error();
  ASSERT_EQ(stripes_here(), 8u);
  for (int i = 0; i < 80 && stripes(1, "broken") == 0; ++i) {
    const std::string key = "filler " + std::to_string(i);
    ASSERT_EQ(put(1, key, content(key, 512 * 1024)), MC_OK) << mc_last_error();
  }
  EXPECT_EQ(stripes(1, "broken"), 1u);
  EXPECT_TRUE(until([&] { return stripes_here() == 0; })) << stripes_here();
  EXPECT_EQ(get(2, "large"), "<MC_NOT_FOUND>");
  EXPECT_FALSE(exists(0, "large"));
}

TEST_F(Stripes, ReadersFindNothingWhenAHolderIsGoneAndItsRestComesBackWithIt) {
  start_striping(3, {{"stripe_grace_seconds", option_time(60)}});
  const std::string value = content("large", kLarge);
  ASSERT_EQ(put(0, "large", value), MC_OK) << mc_last_error();
  close_clients(2);
  agents_[2]->kill_hard();
  ASSERT_TRUE(until([&] { return !exists(0, "large"); }));
  EXPECT_EQ(get(0, "large"), "<MC_NOT_FOUND>");
  EXPECT_EQ(get(1, "large"), "<MC_NOT_FOUND>");
  start_agent(2);  // keeps the memory
  EXPECT_TRUE(until([&] { return get(0, "large") == value; }));
  EXPECT_TRUE(get(1, "large") == value);
  EXPECT_TRUE(get(2, "large") == value);
}

TEST_F(Stripes, OfAnObjectThatLostAHostForGoodAreDroppedAndBlockNoPut) {
  start_striping(3);
  ASSERT_EQ(put(0, "large", content("large", kLarge)), MC_OK) << mc_last_error();
  ASSERT_EQ(put(0, "larger", content("larger", kLarge)), MC_OK) << mc_last_error();
  close_clients(2);
  agents_[2]->kill_hard();
  ASSERT_TRUE(until([&] { return !exists(0, "large"); }));
  // An unreadable object does not block a create.
  const std::string other = content("other", 100);
  ASSERT_EQ(put(1, "large", other), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(0, "large") == other);
  EXPECT_TRUE(until([&] { return stripes_here() == 0; })) << stripes_here();
  EXPECT_GE(stripes(1, "orphaned"), 1u);
}

TEST_F(Stripes, OfAWriterThatDiesDisappear) {
  for (const std::string failpoint : {"striper.before_seal=kill", "striper.told_one=kill"}) {
    SCOPED_TRACE(failpoint);
    agents_.clear();
    start_striping(2);
    start_armed(failpoint);
    all_know_all();
    mc_put_options brief = MC_PUT_OPTIONS_INIT;
    brief.timeout_ns = kSecondNs * 3 / 2;
    // A put that meets its deadline before the failpoint is repeated.
    ASSERT_TRUE(until([&] {
      EXPECT_NE(put(2, "large", content("large", kLarge), &brief), MC_OK);
      return agents_[2]->has_ended();
    }));
    agents_[2]->wait_until_killed();
    close_clients(2);
    EXPECT_TRUE(until([&] { return stripes_here() == 0; })) << stripes_here();
    EXPECT_EQ(get(0, "large"), "<MC_NOT_FOUND>");
    EXPECT_FALSE(exists(1, "large"));
    const std::string value = content("again", kLarge);
    ASSERT_EQ(put(1, "large", value), MC_OK) << mc_last_error();
    close_clients(0);
    close_clients(1);
  }
}

TEST_F(Stripes, OfAPutWhoseHolderDiesAreHeldByOthers) {
  for (const std::string failpoint :
       {"fetch.before_read=kill", "stripes.before_seal=kill", "stripes.sealed=kill"}) {
    SCOPED_TRACE(failpoint);
    agents_.clear();
    start_striping(3);
    start_armed(failpoint);
    all_know_all();
    const std::string value = content("large", kLarge);
    ASSERT_EQ(put(0, "large", value), MC_OK) << mc_last_error();
    agents_[3]->wait_until_killed();
    for (std::size_t agent = 0; agent < 3; ++agent) {
      EXPECT_TRUE(get(agent, "large") == value) << agent;
      close_clients(agent);
    }
  }
}

TEST_F(Stripes, AreFoundAgainByThePatternsOfTheirObject) {
  start_striping(3);
  for (const char* const key : {"a/1", "a/2", "b/1"}) {
    ASSERT_EQ(put(0, key, content(key, 3 * kMiB)), MC_OK) << mc_last_error();
  }
  namespace wire = metadata::wire;
  auto all = matching("");
  all.limit = 10;
  const auto listed = of_master<wire::ListAnswer>([&](metadata::MasterClient& master, auto done) {
    master.list(all, now_ns() + kWatchdogNs, std::move(done));
  });
  const std::vector<wire::ListedKey> wanted = {
      {"a/1", 3 * kMiB}, {"a/2", 3 * kMiB}, {"b/1", 3 * kMiB}};
  EXPECT_EQ(listed.keys, wanted);
  const auto removed =
      of_master<wire::RemoveMatchingAnswer>([&](metadata::MasterClient& master, auto done) {
        master.remove_matching(matching("a/"), now_ns() + kWatchdogNs, std::move(done));
      });
  EXPECT_EQ(removed.removed, 4u) << "two objects, of two hosts each";
  EXPECT_EQ(removed.unconfirmed, 0u);
  EXPECT_EQ(get(2, "a/1"), "<MC_NOT_FOUND>");
  EXPECT_EQ(get(2, "a/2"), "<MC_NOT_FOUND>");
  EXPECT_TRUE(get(2, "b/1") == content("b/1", 3 * kMiB));
  EXPECT_TRUE(until([&] { return stripes_here() == 3; })) << stripes_here();
}

TEST_F(Stripes, CannotBeReachedByTheirKeys) {
  start_striping(2);
  const std::string forged("\0mc stripe 1234567800", 21);
  EXPECT_EQ(put(0, forged, "bytes"), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_remove(client(0), slice(forged), 0), MC_INVALID_ARGUMENT);
}

TEST_F(Stripes, AReaderThatDiesLeavesNothingBehind) {
  start_striping(2, {{"stripe_grace_seconds", option_time(60)}});
  start_armed("gather.before_read=kill");
  all_know_all();
  const std::string value = content("large", kLarge);
  ASSERT_EQ(put(0, "large", value), MC_OK) << mc_last_error();
  // The reader itself dies during the reads, and leaves no reservation.
  mc_open_options brief = MC_OPEN_OPTIONS_INIT;
  const std::string socket = agents_[2]->socket();
  brief.agent = socket.c_str();
  brief.timeout_ns = kSecondNs / 2;
  mc_client* reader = nullptr;
  ASSERT_TRUE(until([&] { return mc_open(&brief, &reader) == MC_OK; })) << mc_last_error();
  mc_view view;
  ASSERT_TRUE(until([&] {
    EXPECT_NE(mc_get_view(reader, slice("large"), &view), MC_OK);
    return agents_[2]->has_ended();
  }));
  agents_[2]->wait_until_killed();
  mc_close(reader);
  agents_[2]->arm("");
  start_agent(2);
  EXPECT_TRUE(until([&] { return get(2, "large") == value; }));
}

}  // namespace
}  // namespace mc::cluster
