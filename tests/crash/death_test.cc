// SPDX-License-Identifier: Apache-2.0
//
// Clients that die or stop while they hold resources.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "crash/host.h"
#include "crash/worker.h"
#include "defect.h"
#include "kept_sessions.h"
#include "libmc/base/clock.h"
#include "mc/mc.h"
#include "process_stop.h"

namespace mc::crash {

namespace {

// The client's answer: a status and a version.
std::string answer_of(Child& client) {
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  for (std::uint64_t now = now_ns(); now < deadline_ns; now = now_ns()) {
    if (const auto answer = client.line()) return *answer;
    wait_for_any({client.output()}, deadline_ns - now);
    if (!client.read_more()) break;
  }
  ADD_FAILURE() << "no answer";
  return std::to_string(MC_INTERNAL);
}

// The status in the client's answer to a line.
mc_status tell(Child& client, const std::string& line) {
  SCOPED_TRACE(line);
  client.say(line);
  return static_cast<mc_status>(std::atoi(answer_of(client).c_str()));
}

void print_times(const char* what, std::vector<double> milliseconds) {
  if (milliseconds.empty()) return;
  std::sort(milliseconds.begin(), milliseconds.end());
  const std::size_t last = milliseconds.size() - 1;
  std::printf("%s: p50 %.2f ms, p99 %.2f ms, n=%zu\n", what, milliseconds[last / 2],
              milliseconds[last * 99 / 100], milliseconds.size());
}

}  // namespace

TEST(DeathOfAClient, IsSuspectedFirstAndReturnsEverythingWhenItIsGone) {
  const unsigned rounds = std::getenv("MC_TEST_LONG") != nullptr ? 100 : 8;
  Host host;
  host.serve();
  std::vector<double> suspected_ms;
  std::vector<double> gone_ms;
  for (unsigned round = 0; round < rounds; ++round) {
    Child client(client_command(kScriptedRole, host));
    ASSERT_EQ(tell(client, "open default " + option_time(8000)), MC_OK);
    ASSERT_EQ(tell(client, "upsert held 1 4096"), MC_OK);
    ASSERT_EQ(tell(client, "view held"), MC_OK);
    ASSERT_EQ(tell(client, "reserve 1048576"), MC_OK);
    ASSERT_EQ(tell(client, "touch " + std::to_string(1u << 30)), MC_OK);
    const pid_t pid = client.pid();
    client.signal(SIGKILL);
    const std::uint64_t killed_ns = now_ns();
    std::uint64_t suspected_ns = 0;
    const std::uint64_t deadline_ns = killed_ns + kWatchdogNs;
    for (Json::Value session = host.session_of(pid);; session = host.session_of(pid)) {
      ASSERT_LT(now_ns(), deadline_ns) << "the agent does not notice";
      if (session.isNull()) break;
      if (suspected_ns == 0 && session["suspected"].asBool()) suspected_ns = now_ns();
      EXPECT_TRUE(suspected_ns == 0 || session["suspected"].asBool()) << "the dead came back";
    }
    const std::uint64_t gone_ns = now_ns();
    // The state may pass between two questions. The agent's log keeps the event.
    const std::regex suspected("event=session_suspected id=[0-9]+ pid=" + std::to_string(pid) +
                               "\\b");
    EXPECT_TRUE(until([&] { return std::regex_search(host.log_text(), suspected); }))
        << "gone without having been suspected";
    EXPECT_EQ(host.pool()["reservations"].asUInt64(), 0u);
    EXPECT_EQ(accounting_error(host, "default"), "");
    if (suspected_ns != 0) {
      suspected_ms.push_back(static_cast<double>(suspected_ns - killed_ns) / 1e6);
    }
    gone_ms.push_back(static_cast<double>(gone_ns - killed_ns) / 1e6);
    client.wait_for_end();
  }
  print_times("killed client with 1 GiB, suspected", suspected_ms);
  print_times("killed client with 1 GiB, gone and everything returned", gone_ms);
  EXPECT_EQ(emptying_error(host, "default"), "");
}

TEST(AStoppedClient, HoldsNoMoreThanItsQuotaAndHoldsUpNobody) {
  constexpr std::uint64_t kQuotaBytes = 2u << 20;
  constexpr std::uint64_t kStepBytes = 256u << 10;
  HostOptions options;
  options.flags = {"--session-quota-bytes", std::to_string(kQuotaBytes)};
  Host host(options);
  host.serve();
  Child holder(client_command(kScriptedRole, host));
  Child other(client_command(kScriptedRole, host));
  ASSERT_EQ(tell(other, "open default " + option_time(8000)), MC_OK);
  ASSERT_EQ(tell(other, "put seen 1 4096"), MC_OK);
  ASSERT_EQ(tell(holder, "open default " + option_time(8000)), MC_OK);
  ASSERT_EQ(tell(holder, "view seen"), MC_OK);
  unsigned granted = 0;
  while (granted < 100 && tell(holder, "reserve " + std::to_string(kStepBytes)) == MC_OK) ++granted;
  EXPECT_EQ(granted, kQuotaBytes / kStepBytes);
  stop_process(holder.pid());
  // Enough puts to fill the pool three times.
  for (int i = 0; i < 96; ++i) {
    const std::string key = "other-" + std::to_string(i);
    ASSERT_EQ(tell(other, "put " + key + " 1 " + std::to_string(kStepBytes)), MC_OK) << key;
    ASSERT_EQ(tell(other, "get " + key), MC_OK) << key;
  }
  const Json::Value session = host.session_of(holder.pid());
  EXPECT_LE(session["reserved_bytes"].asUInt64(), kQuotaBytes);
  EXPECT_FALSE(session["suspected"].asBool()) << "a stopped client is not a dead one";
  holder.signal(SIGCONT);
  EXPECT_EQ(tell(holder, "release"), MC_OK) << "a held view changed";
  EXPECT_EQ(tell(holder, "commit late 1 4096"), MC_OK);
  EXPECT_EQ(tell(other, "get late"), MC_OK);
  EXPECT_EQ(tell(holder, "abandon"), MC_OK);
  EXPECT_EQ(tell(holder, "close"), MC_OK);
  EXPECT_EQ(tell(other, "close"), MC_OK);
  EXPECT_EQ(emptying_error(host, "default"), "");
}

TEST(AStoppedClient, ReadsNoOtherObjectAfterItsSessionIsLost) {
  Host host;
  host.serve();
  Child other(client_command(kScriptedRole, host));
  ASSERT_EQ(tell(other, "open default " + option_time(8000)), MC_OK);
  ASSERT_EQ(tell(other, "put read 1 65536"), MC_OK);
  Command command = client_command(kScriptedRole, host);
  command.environment = {"MC_FAILPOINTS=client.pinned=stop"};
  Child reader(command);
  ASSERT_EQ(tell(reader, "open default " + option_time(8000)), MC_OK);
  reader.say("get read");
  ASSERT_TRUE(until([&] { return reader.look() == Child::State::kStopped; }));
  host.kill_agent();
  drop_kept_sessions(host.directory());
  host.start_agent();
  Child writer(client_command(kScriptedRole, host));
  ASSERT_TRUE(until([&] { return tell(writer, "open default " + option_time(8000)) == MC_OK; }));
  // Enough puts to fill the pool three times.
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(tell(writer, "put other-" + std::to_string(i) + " 1 65536"), MC_OK);
  }
  ASSERT_EQ(tell(writer, "get read"), MC_NOT_FOUND) << "the test needs the bytes to be replaced";
  reader.signal(SIGCONT);
  const std::string answer = answer_of(reader);
  EXPECT_EQ(std::atoi(answer.c_str()), MC_NOT_FOUND) << answer << ": " << kWrongBytes;
}

TEST(AStoppedAgent, ItsLateAnswersAreNotTakenForOthers) {
  HostOptions options;
  options.with_isolated = true;
  Host host(options);
  host.start_agent({"MC_FAILPOINTS=session.channel_reserved=stop"});
  Child client(client_command(kScriptedRole, host));
  ASSERT_TRUE(until([&] { return tell(client, "open iso " + option_time(1000)) == MC_OK; }));
  // The agent stops in the middle of the first question, and answers when no client waits any more.
  EXPECT_NE(tell(client, "put late 1 4096"), MC_OK);
  ASSERT_EQ(host.agent().look(), Child::State::kStopped);
  host.agent().signal(SIGCONT);
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  mc_status status = MC_TIMEOUT;
  while (status != MC_OK && now_ns() < deadline_ns) status = tell(client, "put late 1 4096");
  EXPECT_EQ(status, MC_OK);
  EXPECT_EQ(tell(client, "get late"), MC_OK);
  EXPECT_EQ(tell(client, "alloc later 1 4096"), MC_OK);
  EXPECT_EQ(tell(client, "close"), MC_OK);
  EXPECT_EQ(emptying_error(host, "iso"), "");
}

}  // namespace mc::crash
