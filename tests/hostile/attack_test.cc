// SPDX-License-Identifier: Apache-2.0
#include "attack_test.h"

#include <cstdlib>

#include "libmc/base/clock.h"

namespace mc::hostile {

namespace {
constexpr std::uint64_t kMayGrowKib = kAddressSanitizer ? 400 * 1024 : 24 * 1024;
constexpr std::uint64_t kPoolKib = 64 * 1024;
}  // namespace

bool is_long_run() { return std::getenv("MC_TEST_LONG") != nullptr; }

AttackTest::AttackTest(std::vector<std::string> flags)
    : agent_([&] {
        flags.insert(flags.end(), {"--log-level", "warn"});
        return flags;
      }()) {}

void AttackTest::SetUp() {
  honest_ = std::make_unique<HonestClient>(socket_path());
  ASSERT_EQ(honest_->trouble(), "");
  ASSERT_TRUE(honest_->works_on(50)) << honest_->trouble();
  agent_.ask("status");
  fds_before_ = agent_.fd_count();
  anon_before_kib_ = agent_.memory_kib("RssAnon");
  rss_before_kib_ = agent_.memory_kib("VmRSS");
}

std::size_t AttackTest::session_count() const {
  return agent_.ask("status")["sessions_open"].asUInt64();
}

void AttackTest::TearDown() {
  ASSERT_TRUE(agent_.alive()) << agent_.log();
  EXPECT_TRUE(honest_->works_on(50)) << honest_->trouble();
  const Ended status = run_program({program("mcctl"), "--agent", socket_path(), "status"});
  EXPECT_EQ(status.exit_code, 0) << status.output;
  // Each request is a turn of the agent's loop, in which the agent may free memory.
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs / 2;
  while (agent_.fd_count() > fds_before_ && now_ns() < deadline_ns) agent_.ask("status");
  EXPECT_LE(agent_.fd_count(), fds_before_);
  EXPECT_LE(agent_.memory_kib("RssAnon"), anon_before_kib_ + kMayGrowKib);
  // Mapped pages of the pool may have become resident meanwhile.
  EXPECT_LE(agent_.memory_kib("VmRSS"), rss_before_kib_ + kPoolKib + kMayGrowKib);
  honest_->stop();
  EXPECT_EQ(honest_->trouble(), "");
  EXPECT_EQ(agent_.ask("status")["pid"].asInt(), agent_.pid());
  honest_.reset();
  EXPECT_EQ(agent_.stop(), 0) << agent_.log();
}

}  // namespace mc::hostile
