// SPDX-License-Identifier: Apache-2.0
//
// The agent dies, is upgraded, is stopped, or is gone for good: the effects on its clients.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "conformance/client/agent_fixture.h"
#include "defect.h"
#include "kept_sessions.h"

namespace mc::conformance {
namespace {

class Restart : public AgentTest {
 protected:
  void put_some(mc_client* client, int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(put(client, key_of(i), content(key_of(i), size_of(i))), MC_OK) << mc_last_error();
    }
  }
  void expect_some(mc_client* client, int count) {
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(get(client, key_of(i)) == content(key_of(i), size_of(i))) << i;
    }
  }
  void put_large(mc_client* client, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string key = "large." + std::to_string(i);
      ASSERT_EQ(put(client, key, content(key, kLargeBytes)), MC_OK) << mc_last_error();
    }
  }
  static constexpr std::size_t kLargeBytes = 60'000;
  static std::string key_of(int i) { return "kept." + std::to_string(i); }
  static std::size_t size_of(int i) { return 1 + static_cast<std::size_t>(i) * 311 % 20000; }
  // Starts the next agent, and waits for the reconnection without a request on the client.
  void restart_under(mc_client* client) {
    const auto incarnation = [&] {
      mc_client_info info{};
      info.struct_size = sizeof info;
      EXPECT_EQ(mc_get_client_info(client, &info), MC_OK);
      return info.agent_incarnation;
    };
    const std::uint64_t before = incarnation();
    agent().kill_hard();
    agent().start();
    until([&] { return incarnation() != before; });
  }
  void end_agent(bool hard) { hard ? agent().kill_hard() : agent().upgrade(); }
};
MC_WITH_AGENT(Restart);
// Clients of isolated namespaces hold no reservations.
class RestartOfDirect : public Restart {};
INSTANTIATE_TEST_SUITE_P(, RestartOfDirect,
                         testing::Values(Setting{Place::kProcess, Mode::kDirect}), setting_name);

TEST_P(Restart, AClientOpenedBeforeGoesOnWithAllObjects) {
  serve();
  mc_client* client = open();
  put_some(client, 300);
  for (const bool hard : {true, false, true, true, false}) {
    mc_client_info before{}, after{};
    before.struct_size = after.struct_size = sizeof before;
    ASSERT_EQ(mc_get_client_info(client, &before), MC_OK);
    end_agent(hard);
    expect_some(client, 300);
    agent().start();
    ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK) << mc_last_error();
    ASSERT_EQ(mc_get_client_info(client, &after), MC_OK);
    EXPECT_NE(after.agent_incarnation, before.agent_incarnation);
    EXPECT_EQ(after.session_id, before.session_id) << "the session was resumed";
    EXPECT_EQ(after.node_id, before.node_id);
    expect_some(client, 300);
    const std::string key = "after." + std::to_string(after.agent_incarnation);
    EXPECT_EQ(put(client, key, "value"), MC_OK) << mc_last_error();
    EXPECT_EQ(get(client, key), "value");
    EXPECT_EQ(remove(client, key), MC_OK);
    EXPECT_EQ(tenant()["set_aside"].asUInt64(), 0u);
  }
  expect_some(open(), 300);
}

TEST_P(Restart, ViewsAndLocalHitsNeedNoAgent) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  put_some(client, 100);
  mc_view views[20] = {};
  for (int i = 0; i < 20; ++i) ASSERT_EQ(mc_get_view(client, slice(key_of(i)), &views[i]), MC_OK);
  agent().kill_hard();
  expect_some(client, 100);
  mc_view during{};
  ASSERT_EQ(mc_get_view(client, slice(key_of(50)), &during), MC_OK);
  EXPECT_EQ(exists(client, key_of(7)), MC_OK);
  EXPECT_EQ(exists(client, "missing"), MC_NOT_FOUND);
  EXPECT_EQ(stat(client, key_of(7)).length, size_of(7));
  agent().start();
  // The new agent honours the pins, including the pin that the old agent never saw.
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(put(client, "flood." + std::to_string(i), content("x", 60000)), MC_OK)
        << mc_last_error();
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(bytes_of(views[i]) == content(key_of(i), size_of(i))) << i;
    mc_view_release(&views[i]);
  }
  EXPECT_TRUE(bytes_of(during) == content(key_of(50), size_of(50)));
  mc_view_release(&during);
}

TEST_P(Restart, AViewWhoseSessionIsLostSaysSoOnceItsBytesAreGone) {
  serve({{"pool_bytes", "8MiB"}, {"descriptor_store", "keeper"}});
  mc_client* client = open();
  put_some(client, 100);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice(key_of(3)), &view), MC_OK);
  agent().kill_hard();
  drop_kept_sessions(agent().directory());
  EXPECT_EQ(mc_view_check(&view), MC_OK) << "nobody has written to the pool yet";
  agent().start();
  mc_client* other = open();
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(put(other, "flood." + std::to_string(i), content("x", 60000)), MC_OK)
        << mc_last_error();
  }
  EXPECT_FALSE(bytes_of(view) == content(key_of(3), size_of(3))) << "the test needs other bytes";
  EXPECT_TRUE(says(MC_SESSION_LOST, mc_view_check(&view)));
  EXPECT_TRUE(says(MC_SESSION_LOST, mc_view_verify(&view, slice(key_of(3)))));
  mc_view_release(&view);
  ASSERT_EQ(put(client, key_of(3), "again"), MC_OK) << mc_last_error();
  EXPECT_EQ(get(client, key_of(3)), "again");
}

// Inodes of the memory files of this name that this process maps.
std::set<std::string> mapped_files(const std::string& name) {
  std::set<std::string> inodes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:" + name + " ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, access, offset, device, inode;
    words >> range >> access >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

TEST_P(Restart, MemoryOfAnAgentThatStoppedIsLetGoOnceNoViewIsLeft) {
  serve();
  mc_client* client = open();
  put_some(client, 10);
  std::promise<void> read, end;
  std::thread idle([&] {  // this thread's channel stays with the old session
    expect_some(client, 10);
    read.set_value();
    end.get_future().wait();
  });
  read.get_future().wait();
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice(key_of(3)), &view), MC_OK);
  for (int round = 0; round < 3; ++round) {
    agent().stop();
    agent().start();
    EXPECT_EQ(mc_ping(client, kWatchdogNs), MC_OK) << mc_last_error();
    EXPECT_EQ(exists(client, key_of(3)), MC_NOT_FOUND) << "the pool is new";
    EXPECT_TRUE(bytes_of(view) == content(key_of(3), size_of(3)));
    until([&] { return mapped_files("mc-pool0").size() == 2; });
    until([&] { return mapped_files("mc-index0").size() == 2; });
  }
  EXPECT_TRUE(bytes_of(view) == content(key_of(3), size_of(3)));
  mc_view_release(&view);
  until([&] { return mapped_files("mc-pool0").size() == 1; });
  until([&] { return mapped_files("mc-index0").size() == 1; });
  end.set_value();
  idle.join();
  put_some(client, 10);
  expect_some(client, 10);
}

TEST_P(Restart, CallsWaitForTheNewAgentAndSucceed) {
  serve();
  mc_client* client = open();
  put_some(client, 10);
  for (const bool hard : {true, false}) {
    end_agent(hard);
    const std::string name = hard ? "killed" : "upgraded";
    const mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const std::string key = name + std::to_string(i);
        ++begun;
        EXPECT_EQ(put(client, key, content(key, 100000), &patient), MC_OK) << mc_last_error();
      });
    }
    threads.emplace_back([&] {
      ++begun;
      EXPECT_EQ(mc_remove(client, slice(key_of(0)), 100 * kSecondNs), hard ? MC_OK : MC_NOT_FOUND);
    });
    until([&] { return begun == 5; });
    agent().start();
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 4; ++i) {
      const std::string key = name + std::to_string(i);
      EXPECT_TRUE(get(client, key) == content(key, 100000));
    }
  }
}

TEST_P(Restart, PutsGoOnWhileTheAgentIsKilledAgainAndAgain) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.timeout_ns = 60 * kSecondNs; });
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        const std::string key = "t" + std::to_string(t) + "." + std::to_string(i % 50);
        mc_put_options options = put_options();
        options.upsert = 1;
        EXPECT_EQ(put(client, key, content(key, 10000), &options), MC_OK) << mc_last_error();
        EXPECT_TRUE(get(client, key) == content(key, 10000));
        ++rounds;
      }
    });
  }
  for (int kill = 0; kill < 5; ++kill) {
    const int seen = rounds;
    until([&] { return rounds > seen + 20; });
    end_agent(kill % 2 == 0);
    agent().start();
  }
  const int seen = rounds;
  until([&] { return rounds > seen + 20; });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tenant()["set_aside"].asUInt64(), 0u);
}

TEST_P(Restart, AsynchronousPutsInFlightEndWithTheirDescriptorAlone) {
  serve();
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const mc_put_options patient = put_options(MC_PIN_NONE, 60 * kSecondNs);
  agent().pause(true);
  const auto submit = [&](std::uint64_t i) {
    const std::string key = "async." + std::to_string(i);
    const std::string value = content(key, 5000);
    const mc_slice piece = slice(value);
    const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
    ASSERT_EQ(mc_put_async(client, cq, &item, 1, &patient, i, nullptr), MC_OK) << mc_last_error();
  };
  for (std::uint64_t i = 0; i < 50; ++i) submit(i);
  agent().kill_hard();
  for (std::uint64_t i = 50; i < 100; ++i) submit(i);
  agent().start();
  std::set<std::uint64_t> seen;
  while (seen.size() < 100) {
    pollfd entry{mc_cq_fd(cq), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60000), 1) << seen.size();
    mc_completion completion{};
    while (mc_cq_poll(cq, &completion, 1) == 1) {
      EXPECT_EQ(completion.status, MC_OK) << mc_status_name(completion.status);
      EXPECT_TRUE(seen.insert(completion.user_data).second);
    }
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::string key = "async." + std::to_string(i);
    EXPECT_TRUE(get(client, key) == content(key, 5000)) << i;
  }
  mc_cq_destroy(cq);
}

// The answer to a put brings the next reservation. If the session is lost before the client has read
// the answer, that reservation is another client's memory.
TEST_P(Restart, AnAnswerOfALostSessionBringsNoReservation) {
  serve({{"pool_bytes", "8MiB"}, {"descriptor_store", "keeper"}});
  constexpr std::size_t kBytes = 50'000;
  mc_client* client = open([](mc_open_options& o) { o.timeout_ns = 60 * kSecondNs; });
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const auto submit = [&](const std::string& key) {
    const std::string value = content(key, kBytes);
    const mc_slice piece = slice(value);
    const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
    ASSERT_EQ(mc_put_async(client, cq, &item, 1, nullptr, 0, nullptr), MC_OK) << mc_last_error();
  };
  mc_completion completion{};
  std::size_t count = 0;
  submit("before");
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
  submit("unread");
  pollfd entry{mc_cq_fd(cq), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 60000), 1) << "the agent has answered";
  agent().kill_hard();
  drop_kept_sessions(agent().directory());
  agent().start();
  ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK) << mc_last_error();
  mc_client* other = open();
  put_large(other, 130);
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
  submit("after");
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
  EXPECT_EQ(completion.status, MC_OK) << mc_status_name(completion.status);
  for (int i = 0; i < 130; ++i) {
    const std::string key = "large." + std::to_string(i);
    if (exists(other, key) == MC_NOT_FOUND) continue;  // evicted
    EXPECT_TRUE(get(other, key) == content(key, kLargeBytes)) << key;
  }
  mc_cq_destroy(cq);
}

TEST_P(Restart, AGroupAndAReservationOfBeforeCanBeCommittedAfter) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.timeout_ns = 60 * kSecondNs; });
  mc_group* group = nullptr;
  ASSERT_EQ(mc_group_begin(client, &group), MC_OK);
  mc_put_options options = put_options();
  options.group = group;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(put(client, key_of(i), content(key_of(i), size_of(i)), &options), MC_OK);
  }
  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client, 5, 0, &reservation), MC_OK);
  mc_span span{};
  ASSERT_EQ(mc_reservation_spans(reservation, &span, 1), 1u);
  std::copy_n("hello", 5, static_cast<char*>(span.data));
  agent().kill_hard();
  agent().start();
  EXPECT_EQ(mc_commit(reservation, slice("reserved"), 5, nullptr), MC_OK) << mc_last_error();
  EXPECT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  EXPECT_EQ(get(client, "reserved"), "hello");
  expect_some(client, 20);
}

// The agent grants an entry again and again. A request of before the restart names the entry, but must
// not end the later reservation of another thread.
TEST_P(Restart, ARepeatedRequestLeavesAnotherThreadsReservationAlone) {
  serve({{"pool_bytes", "64MiB"}, {"session_quota_bytes", "64MiB"}});
  constexpr std::size_t kBytes = 8 * kMiB;  // too large for the client's cache
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 32 * kMiB; });
  mc_client* other = open([](mc_open_options& o) { o.staging_bytes = 32 * kMiB; });
  std::promise<void> abandoned, restarted;
  std::thread first([&] {
    mc_reservation* reservation = nullptr;
    EXPECT_EQ(mc_reserve(client, kBytes, kWatchdogNs, &reservation), MC_OK) << mc_last_error();
    mc_abandon(reservation);
    abandoned.set_value();
    restarted.get_future().wait();
    EXPECT_EQ(mc_ping(client, kWatchdogNs), MC_OK) << mc_last_error();
  });
  abandoned.get_future().wait();
  until([&] { return tenant()["reservations"].asUInt64() == 0; });
  mc_reservation* second = nullptr;
  EXPECT_EQ(mc_reserve(client, kBytes, kWatchdogNs, &second), MC_OK) << mc_last_error();
  restart_under(client);
  restarted.set_value();
  first.join();
  ASSERT_NE(second, nullptr);
  const std::string theirs = content("theirs", kBytes);
  ASSERT_EQ(put(other, "theirs", theirs), MC_OK) << mc_last_error();
  mc_span spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_reservation_spans(second, spans, MC_MAX_EXTENTS);
  for (std::size_t i = 0; i < count; ++i) std::memset(spans[i].data, 'x', spans[i].size);
  EXPECT_TRUE(get(other, "theirs") == theirs) << kWrongBytes;
  EXPECT_EQ(mc_commit(second, slice("ours"), kBytes, nullptr), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(other, "ours") == std::string(kBytes, 'x')) << kWrongBytes;
}

TEST_P(Restart, ARemovalThatWasAnsweredIsNotRepeated) {
  serve();
  mc_client* client = open();
  mc_client* other = open();
  ASSERT_EQ(put(client, "key", "old"), MC_OK);
  agent().pause(true);
  EXPECT_EQ(mc_remove(client, slice("key"), kSecondNs / 20), MC_TIMEOUT);
  agent().pause(false);
  until([&] { return exists(other, "key") == MC_NOT_FOUND; });
  ASSERT_EQ(put(other, "key", "new"), MC_OK);
  restart_under(client);
  ASSERT_EQ(mc_ping(client, kWatchdogNs), MC_OK) << mc_last_error();
  EXPECT_EQ(get(other, "key"), "new");
}

TEST_P(Restart, PinsGroupsAndParentsSurvive) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  const mc_put_options hard = put_options(MC_PIN_HARD);
  const mc_put_options soft = put_options(MC_PIN_SOFT);
  ASSERT_EQ(put(client, "hard", content("hard", 50000), &hard), MC_OK);
  ASSERT_EQ(put(client, "soft", content("soft", 50000), &soft), MC_OK);
  mc_put_options child = put_options();
  child.parent = slice("hard");
  ASSERT_EQ(put(client, "child", "value", &child), MC_OK);
  const mc_stat_info before[] = {stat(client, "hard"), stat(client, "soft"), stat(client, "child")};
  agent().kill_hard();
  agent().start();
  ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK);
  const mc_stat_info after[] = {stat(client, "hard"), stat(client, "soft"), stat(client, "child")};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(after[i].pin, before[i].pin);
    EXPECT_EQ(after[i].version, before[i].version);
    EXPECT_EQ(after[i].checksum, before[i].checksum);
    EXPECT_EQ(after[i].parent_hash, before[i].parent_hash);
  }
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(put(client, "flood." + std::to_string(i), content("x", 50000)), MC_OK);
  }
  EXPECT_TRUE(get(client, "hard") == content("hard", 50000));
  EXPECT_TRUE(get(client, "soft") == content("soft", 50000));
}

TEST_P(Restart, WithoutAnAgentCallsEndAtTheirDeadline) {
  serve();
  mc_client* client = open();
  put_some(client, 5);
  const std::uint64_t brief_ns = kSecondNs / 5;
  const mc_put_options brief = put_options(MC_PIN_NONE, brief_ns);
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  agent().kill_hard();
  const auto ends = [](mc_status status) {
    EXPECT_NE(std::string(mc_last_error()), "");
    return status == MC_TIMEOUT || status == MC_AGENT_UNAVAILABLE;
  };
  EXPECT_TRUE(ends(put(client, "new", content("new", 777777), &brief)));
  EXPECT_TRUE(ends(put(client, "new2", content("new", size_of(0)), &brief)));
  EXPECT_TRUE(ends(mc_remove(client, slice(key_of(0)), brief_ns)));
  EXPECT_TRUE(ends(mc_set_pin(client, slice(key_of(0)), MC_PIN_HARD, 0, brief_ns)));
  EXPECT_TRUE(ends(mc_ping(client, brief_ns)));
  std::thread([&] {
    EXPECT_TRUE(ends(put(client, "thread", "a channel that was never open", &brief)));
  }).join();
  const mc_slice piece = slice("value");
  const mc_put_item item{slice("async"), &piece, 1, {nullptr, 0}, MC_OK};
  ASSERT_EQ(mc_put_async(client, cq, &item, 1, &brief, 3, nullptr), MC_OK);
  pollfd entry{mc_cq_fd(cq), POLLIN, 0};
  mc_completion completion{};
  while (mc_cq_poll(cq, &completion, 1) == 0) ASSERT_EQ(::poll(&entry, 1, 60000), 1);
  EXPECT_EQ(completion.user_data, 3u);
  EXPECT_TRUE(completion.status == MC_TIMEOUT || completion.status == MC_AGENT_UNAVAILABLE);
  expect_some(client, 5);
  mc_cq_destroy(cq);
}

TEST_P(Restart, OpeningWithoutAnAgentNamesTheRemedy) {
  serve();
  agent().stop();
  mc_client* client = nullptr;
  EXPECT_TRUE(says(MC_AGENT_UNAVAILABLE,
                   try_open(&client, [](mc_open_options& o) { o.timeout_ns = kSecondNs / 20; })));
  const std::string text = mc_last_error();
  EXPECT_NE(text.find(agent().socket()), std::string::npos) << text;
  EXPECT_NE(text.find("mc-agent"), std::string::npos) << "names what to start: " << text;
  EXPECT_EQ(client, nullptr);
}

TEST_P(Restart, OpeningWaitsForAnAgentThatIsStarting) {
  serve();
  agent().stop();
  std::atomic<bool> begun{false};
  std::thread opening([&] {
    begun = true;
    mc_client* client = open();
    EXPECT_EQ(put(client, "key", "value"), MC_OK);
  });
  until([&] { return begun.load(); });
  agent().start();
  opening.join();
}

TEST_P(Restart, AfterACleanStopTheClientGoesOnWithAnEmptyPool) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.timeout_ns = 60 * kSecondNs; });
  put_some(client, 20);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice(key_of(3)), &view), MC_OK);
  agent().stop();
  EXPECT_TRUE(bytes_of(view) == content(key_of(3), size_of(3)));
  agent().start();
  until([&] { return exists(client, key_of(5)) == MC_NOT_FOUND; });
  EXPECT_TRUE(bytes_of(view) == content(key_of(3), size_of(3))) << "the old memory stays mapped";
  EXPECT_EQ(mc_view_verify(&view, slice(key_of(3))), MC_OK);
  put_some(client, 20);
  expect_some(client, 20);
  mc_view_release(&view);
}

// The agent reads session memory of the caller, who has it back after a timeout.
TEST_P(Restart, AfterATimeoutTheAgentPublishesNoBytesThatTheCallerWroteLater) {
  serve();
  mc_client* client = open();
  constexpr std::size_t kBytes = 100'000;
  ASSERT_EQ(put(client, "before", "value"), MC_OK);
  void* memory = nullptr;
  ASSERT_EQ(mc_alloc(client, kBytes, &memory), MC_OK) << mc_last_error();
  const auto write = [&](std::string_view key) {
    std::memcpy(memory, content(key, kBytes).data(), kBytes);
  };
  write("late");
  const mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 20);
  agent().pause(true);
  EXPECT_TRUE(says(MC_TIMEOUT, put(client, "late", {static_cast<char*>(memory), kBytes}, &brief)));
  write("other");
  agent().pause(false);
  ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK) << mc_last_error();
  const auto stored = get(client, "late");
  EXPECT_TRUE(!stored || *stored == content("late", kBytes));
}

// The answer to a put that timed out comes later, and frees session memory.
TEST_P(Restart, SessionMemoryOfALateAnswerServesTheNextCall) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = kMiB; });
  ASSERT_EQ(put(client, "before", "value"), MC_OK);
  const mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 20);
  const std::string value = content("late", kMiB);
  const auto put_late = [&] {
    agent().pause(true);
    EXPECT_TRUE(says(MC_TIMEOUT, put(client, "late", value, &brief)));
    agent().pause(false);
  };
  put_late();
  mc_reservation* reservation = nullptr;
  EXPECT_EQ(mc_reserve(client, kMiB, 20 * kSecondNs, &reservation), MC_OK) << mc_last_error();
  mc_abandon(reservation);
  put_late();
  void* memory = nullptr;
  EXPECT_TRUE(mc::until([&] { return mc_alloc(client, kMiB, &memory) == MC_OK; }));
}

TEST_P(RestartOfDirect, ReservationsOfALateAnswerComeBack) {
  constexpr std::size_t kBytes = 4096, kItems = 8;
  serve();
  mc_client* client = open();
  int batches = 0;
  const auto put_eight = [&](const mc_put_options* options) {
    std::vector<std::string> keys, values;
    std::vector<mc_slice> pieces;
    std::vector<mc_put_item> items;
    for (std::size_t i = 0; i < kItems; ++i) {
      keys.push_back(std::to_string(batches) + "." + std::to_string(i));
      values.push_back(content(keys.back(), kBytes));
    }
    for (const std::string& value : values) pieces.push_back(slice(value));
    for (std::size_t i = 0; i < kItems; ++i) {
      items.push_back({slice(keys[i]), &pieces[i], 1, {nullptr, 0}, MC_OK});
    }
    ++batches;
    return mc_put_batch(client, items.data(), kItems, options);
  };
  const mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 20);
  for (int round = 0; round < 3; ++round) {
    // Afterwards the client's cache has a reservation for each put.
    ASSERT_EQ(put_eight(nullptr), MC_OK) << mc_last_error();
    agent().pause(true);
    EXPECT_TRUE(says(MC_TIMEOUT, put_eight(&brief)));
    agent().pause(false);
    ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK) << mc_last_error();
    EXPECT_LE(session()["reserved_bytes"].asUInt64(), kItems * kBytes) << "round " << round;
  }
}

TEST_P(Restart, AnAsynchronousPutSurvivesAnAgentThatDiesBeforeItSharesMemory) {
  serve({{"descriptor_store", "keeper"}});
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  agent().kill_hard();
  drop_kept_sessions(agent().directory());
  agent().start();
  // The queue is in the new session now, which has no session memory yet.
  ASSERT_EQ(mc_ping(client, 60 * kSecondNs), MC_OK) << mc_last_error();
  mc_completion completion{};
  EXPECT_EQ(mc_cq_poll(cq, &completion, 1), 0u);
  agent().kill_hard();
  const std::string value = content("key", 5000);
  const mc_slice piece = slice(value);
  const mc_put_item item{slice("key"), &piece, 1, {nullptr, 0}, MC_OK};
  const mc_put_options patient = put_options(MC_PIN_NONE, 60 * kSecondNs);
  ASSERT_EQ(mc_put_async(client, cq, &item, 1, &patient, 0, nullptr), MC_OK) << mc_last_error();
  EXPECT_EQ(mc_cq_poll(cq, &completion, 1), 0u) << mc_status_name(completion.status);
  agent().start();
  std::size_t count = 0;
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK) << mc_last_error();
  EXPECT_EQ(completion.status, MC_OK) << mc_status_name(completion.status);
  EXPECT_TRUE(get(client, "key") == value);
  mc_cq_destroy(cq);
}

// More requests than half the channel has, so that their slots wrap around.
TEST_P(Restart, UnansweredPutsOfAKeyAreRepeatedInTheirOrder) {
  serve();
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  mc_put_options replace = put_options(MC_PIN_NONE, 60 * kSecondNs);
  replace.upsert = 1;
  constexpr std::uint64_t kPuts = MC_MAX_OUTSTANDING * 2 / 3;
  const auto submit = [&](const std::string& key, std::uint64_t i) {
    const std::string value = "value " + std::to_string(i);
    const mc_slice piece = slice(value);
    const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
    ASSERT_EQ(mc_put_async(client, cq, &item, 1, &replace, i, nullptr), MC_OK) << mc_last_error();
  };
  const auto wait_for_all = [&] {
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      mc_completion completion{};
      std::size_t count = 0;
      ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
      EXPECT_EQ(completion.status, MC_OK) << mc_status_name(completion.status);
    }
  };
  // Afterwards the client has reservations for all.
  for (std::uint64_t i = 0; i < kPuts; ++i) submit("key." + std::to_string(i), i);
  wait_for_all();
  for (int round = 0; round < 3; ++round) {
    agent().pause(true);
    for (std::uint64_t i = 0; i < kPuts; ++i) submit("key", i);
    agent().kill_hard();
    agent().start();
    wait_for_all();
    EXPECT_EQ(get(client, "key"), "value " + std::to_string(kPuts - 1)) << "round " << round;
  }
  mc_cq_destroy(cq);
}

TEST_P(Restart, ClientsWaitForAStoppedAgent) {
  serve();
  mc_client* client = open();
  put_some(client, 5);
  agent().pause(true);
  EXPECT_TRUE(says(MC_TIMEOUT, mc_ping(client, kSecondNs / 20)));
  EXPECT_TRUE(says(MC_TIMEOUT, mc_remove(client, slice(key_of(1)), kSecondNs / 20)));
  expect_some(client, 1);
  std::thread waiting([&] { EXPECT_EQ(put(client, "late", content("late", 123456)), MC_OK); });
  agent().pause(false);
  waiting.join();
  EXPECT_TRUE(get(client, "late") == content("late", 123456));
  // The timed-out request may have taken effect. The channel works again.
  put_some(client, 5);
  expect_some(client, 5);
}

TEST_P(Restart, ALateAnswerIsNotTakenForALaterQuestion) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  const mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 5);
  for (int round = 0; round < 3; ++round) {
    agent().pause(true);
    // A thread's first call asks the agent for a channel.
    std::thread([&] {
      EXPECT_NE(put(client, "late" + std::to_string(round), "value", &brief), MC_OK);
    }).join();
    agent().pause(false);
    std::thread([&] {
      const std::string key = "again" + std::to_string(round);
      EXPECT_EQ(put(client, key, content(key, 5000)), MC_OK) << mc_last_error();
      EXPECT_TRUE(get(client, key) == content(key, 5000));
    }).join();
    until([&] { return mc_ping(client, 0) == MC_OK; });
    void* memory = nullptr;
    until([&] { return mc_alloc(client, kMiB, &memory) == MC_OK; });
    mc_free(client, memory);
  }
}

}  // namespace
}  // namespace mc::conformance
