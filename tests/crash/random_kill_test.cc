// SPDX-License-Identifier: Apache-2.0
//
// Kills at random times under load. MC_TEST_LONG=1: ten times as many. MC_TEST_SEED:
// another sequence.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <random>

#include "crash/host.h"
#include "crash/ledger.h"
#include "crash/worker.h"
#include "defect.h"
#include "libmc/base/clock.h"

namespace mc::crash {

namespace {

constexpr unsigned kClients = 2;

unsigned kills_wanted(unsigned in_short) {
  return std::getenv("MC_TEST_LONG") != nullptr ? 1000 : in_short;
}

unsigned seed_wanted() {
  const char* text = std::getenv("MC_TEST_SEED");
  return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 1;
}

HostOptions load_host() {
  HostOptions options;
  options.pool_mib = 64;
  return options;
}

class RandomKills : public ::testing::Test {
 protected:
  RandomKills() : host_(load_host()), random_(seed_wanted()) {
    ledger_path_ = host_.directory() + "/ledger";
    ledger_ = open_ledger(ledger_path_);
    host_.serve();
    for (unsigned number = 0; number < kClients; ++number) start_client(number);
    std::printf("seed=%u\n", seed_wanted());
  }

  void start_client(unsigned number) {
    clients_[number] = Child(client_command(kLoadingRole, host_,
                                            {ledger_path_, std::to_string(number),
                                             std::to_string(kClients), std::to_string(random_())}));
    ASSERT_TRUE(says(number, "ready")) << host_.log_text();
  }

  bool says(unsigned number, const std::string& word) {
    const std::uint64_t deadline_ns = now_ns() + 3 * kWatchdogNs;
    for (std::uint64_t now = now_ns(); now < deadline_ns; now = now_ns()) {
      if (clients_[number].line() == word) return true;
      wait_for_any({clients_[number].output()}, deadline_ns - now);
      if (!clients_[number].read_more()) return clients_[number].line() == word;
    }
    return false;
  }

  // Load for a random time; shorter after an unexpected event.
  void let_run(std::uint64_t most_ns) {
    const std::uint64_t until_ns = now_ns() + random_() % most_ns;
    for (std::uint64_t now = now_ns(); now < until_ns; now = now_ns()) {
      wait_for_any({}, until_ns - now);
    }
  }

  std::uint64_t sum_of(std::atomic<std::uint64_t> LedgerPart::*counter) const {
    std::uint64_t sum = 0;
    for (const LedgerPart& part : ledger_->parts) sum += (part.*counter).load();
    return sum;
  }

  void end_load() {
    for (unsigned number = 0; number < kClients; ++number) {
      clients_[number].close_input();
      EXPECT_TRUE(says(number, "done")) << "client " << number << "\n" << host_.log_text();
      clients_[number] = Child();
    }
    EXPECT_EQ(sum_of(&LedgerPart::wrong), 0u) << kWrongBytes << host_.log_text();
    EXPECT_EQ(sum_of(&LedgerPart::failures), 0u) << host_.log_text();
    std::printf("operations=%llu\n",
                static_cast<unsigned long long>(sum_of(&LedgerPart::operations)));
    EXPECT_EQ(accounting_error(host_, "default"), "");
    EXPECT_EQ(emptying_error(host_, "default"), "");
    constexpr unsigned kLeft = Host::kNodeDescriptors + Host::kPoolDescriptors;
    EXPECT_EQ(host_.await_descriptors(kLeft), kLeft);
  }

  Host host_;
  std::mt19937 random_;
  std::string ledger_path_;
  Ledger* ledger_ = nullptr;
  Child clients_[kClients];
};

}  // namespace

TEST_F(RandomKills, OfTheAgentLoseNothingThatWasAcknowledged) {
  const unsigned kills = kills_wanted(100);
  const std::uint64_t start_ns = now_ns();
  for (unsigned kill = 0; kill < kills && !HasFailure(); ++kill) {
    // Sometimes so early that the agent is still taking over from an agent that was killed
    // as early.
    let_run(kill % 4 == 0 ? 20'000'000 : 300'000'000);
    host_.kill_agent();
    host_.start_agent();
    EXPECT_EQ(sum_of(&LedgerPart::wrong), 0u) << "after kill " << kill << "\n" << host_.log_text();
  }
  const Json::Value sessions = host_.status()["sessions"];
  for (const Json::Value& session : sessions) {
    std::printf("after all kills: client holds %llu bytes in %llu reservations\n",
                static_cast<unsigned long long>(session["reserved_bytes"].asUInt64()),
                static_cast<unsigned long long>(session["reservations"].asUInt64()));
  }
  end_load();
  std::printf("agent kills=%u seconds=%.1f wrong=%llu\n", kills,
              static_cast<double>(now_ns() - start_ns) / 1e9,
              static_cast<unsigned long long>(sum_of(&LedgerPart::wrong)));
}

TEST_F(RandomKills, OfClientsLeakNothingAndDisturbNobody) {
  const unsigned kills = kills_wanted(100);
  const std::uint64_t start_ns = now_ns();
  for (unsigned kill = 0; kill < kills && !HasFailure(); ++kill) {
    const unsigned victim = static_cast<unsigned>(random_() % kClients);
    const std::uint64_t before = ledger_->parts[1 - victim].operations.load();
    let_run(60'000'000);
    const pid_t pid = clients_[victim].pid();
    clients_[victim].signal(SIGKILL);
    clients_[victim].wait_for_end();
    const bool gone = host_.status_becomes([&](const Json::Value& status) {
      for (const Json::Value& session : status["sessions"]) {
        if (session["pid"].asInt() == pid) return false;
      }
      return true;
    });
    ASSERT_TRUE(gone) << "the session of a killed client stays";
    start_client(victim);
    EXPECT_GT(ledger_->parts[1 - victim].operations.load(), before) << "the survivor stood still";
  }
  end_load();
  std::printf("client kills=%u seconds=%.1f\n", kills,
              static_cast<double>(now_ns() - start_ns) / 1e9);
}

}  // namespace mc::crash
