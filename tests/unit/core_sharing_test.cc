// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/core_sharing.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "libmc/base/clock.h"
#include "patience.h"

namespace mc {
namespace {

bool on_the_first_core() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  return false;
}

bool comes_to(CoreSharing& core, bool wanted) {
  const std::uint64_t until = now_ns() + kWatchdogNs;
  while (core.yield() != wanted) {
    if (now_ns() > until) return false;
  }
  return true;
}

// Runs `body` on one core beside a thread that computes there all the time.
template <class Body>
void beside_a_computing_thread(const Body& body) {
  std::thread([&] {
    ASSERT_TRUE(on_the_first_core());
    std::atomic<bool> over{false};
    std::thread other([&] {  // inherits the same core
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
    body();
    over = true;
    other.join();
  }).join();
}

cpu_set_t affinity() {
  cpu_set_t allowed;
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  return allowed;
}

bool leaves(CoreSharing& core, std::uint32_t processor, std::uint64_t limit_ns) {
  const std::uint64_t until = now_ns() + limit_ns;
  while (CoreSharing::here() == processor && now_ns() < until) core.leave_if_met_often(now_ns());
  return CoreSharing::here() != processor;
}

TEST(CoreSharing, LeavesTheProcessorOfTheOtherSideAndKeepsTheAffinity) {
  const cpu_set_t allowed = affinity();
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "this process may use a single processor only";
  std::thread([&] {
    ASSERT_TRUE(on_the_first_core());
    ASSERT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
    CoreSharing core;
    EXPECT_TRUE(leaves(core, CoreSharing::here(), kWatchdogNs));
    const cpu_set_t after = affinity();
    EXPECT_TRUE(CPU_EQUAL(&after, &allowed));
  }).join();
}

TEST(CoreSharing, StaysOnTheOnlyProcessorOfItsAffinity) {
  std::thread([] {
    ASSERT_TRUE(on_the_first_core());
    const cpu_set_t only = affinity();
    CoreSharing core;
    EXPECT_FALSE(leaves(core, CoreSharing::here(), 100'000'000));
    const cpu_set_t after = affinity();
    EXPECT_TRUE(CPU_EQUAL(&after, &only));
  }).join();
}

TEST(CoreSharing, SaysToSleepWhileAnotherThreadComputesOnTheCore) {
  beside_a_computing_thread([] {
    CoreSharing core;
    EXPECT_TRUE(comes_to(core, false));
  });
}

TEST(CoreSharing, GoesOnYieldingWhereThatIsCheapAndTriesAgainAfterItWasNot) {
  bool may_preempt = true;
  beside_a_computing_thread([&] {
    CoreSharing core;
    EXPECT_TRUE(comes_to(core, false));
    sched_param first{};
    first.sched_priority = 1;
    // From here on no thread takes the core from this thread: yields return at once.
    may_preempt = ::sched_setscheduler(0, SCHED_FIFO, &first) == 0;
    if (may_preempt) {
      EXPECT_TRUE(comes_to(core, true));
    }
  });
  if (!may_preempt) GTEST_SKIP() << "this user may not set a real-time priority (CAP_SYS_NICE)";
}

}  // namespace
}  // namespace mc
