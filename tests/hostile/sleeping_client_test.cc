// SPDX-License-Identifier: Apache-2.0
//
// A client that sleeps until the agent wakes it. Unlike libmc, this client never polls by itself.
// If an answer comes after the agent has stopped polling the channel, the answer must still wake
// the client.
#include <sys/epoll.h>

#include <thread>

#include "attack_test.h"
#include "libmc/base/clock.h"
#include "shm/doorbell.h"

namespace mc::hostile {

namespace {

constexpr std::uint64_t kHalfBytes = 8 << 20;  // half of the pool, and the quota of a session
constexpr std::uint64_t kSmallBytes = 4096;

class SleepingClient : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(owner_.open() && owner_.open_channel()) << owner_.refusal();
    ASSERT_TRUE(second_.open() && second_.open_channel()) << second_.refusal();
    ASSERT_TRUE(sleeper_.open() && sleeper_.open_channel()) << sleeper_.refusal();
    // Edge-triggered as in libmc: no process can drain the bell, and every ring is an event.
    epoll_event ring{};
    ring.events = EPOLLIN | EPOLLET;
    ASSERT_EQ(
        ::epoll_ctl(ear_.get(), EPOLL_CTL_ADD, sleeper_.fds()[shm::kClientEventFd].get(), &ring),
        0);
    // The pool is full, and no object can be evicted.
    held_ = owner_.reserve(kSmallBytes, 16);
    ASSERT_EQ(held_.size(), 16u);
    ASSERT_EQ(owner_.reserve(kHalfBytes - 16 * kSmallBytes, 1).size(), 1u);
    ASSERT_EQ(second_.reserve(kHalfBytes, 1).size(), 1u);
  }

  void ask_for_room(std::uint64_t deadline_ns) {
    shm::Request request{};
    request.op = static_cast<std::uint16_t>(shm::Op::kReserve);
    request.item_count = 1;
    request.argument_bytes = sizeof(shm::ReservedItem);
    request.deadline_ns = deadline_ns;
    request.a = kSmallBytes;
    sleeper_.publish(shm::to_words(request));
  }
  void free_some() {
    shm::PutItem item{};
    item.entry = held_.back().entry;
    item.generation = held_.back().generation;
    held_.pop_back();
    EXPECT_EQ(owner_.ask(owner_.items(shm::Op::kAbandon, {{item, ""}})).status, MC_OK);
  }
  bool agent_looks() { return header().agent_asleep.load_relaxed() == 0; }
  // Waits until the agent sleeps on this channel's bell.
  void await_idle_agent() {
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    while (agent_looks() && now_ns() < deadline_ns) std::this_thread::yield();
    ASSERT_FALSE(agent_looks()) << "the agent does not stop looking at an idle channel";
  }
  shm::ChannelHeader& header() { return sleeper_.channel().header; }

  void fall_asleep() { shm::announce_client_sleep(header(), GetParam()); }
  // Sleeps until a wake-up. False: no wake-up came.
  bool woken() {
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    if (GetParam() == shm::kClientInPoll) {
      epoll_event rung{};
      return ::epoll_wait(ear_.get(), &rung, 1, static_cast<int>(kWatchdogNs / 1000000)) == 1;
    }
    for (std::uint64_t now = now_ns(); now < deadline_ns; now = now_ns()) {
      if (header().client_asleep.load_relaxed() == shm::kClientAwake) return true;
      shm::wait_for_agent(header(), deadline_ns - now);
    }
    return false;
  }

  AgentProcess agent_{{}, "16MiB"};
  HostileSession owner_{agent_.socket()};
  HostileSession second_{agent_.socket()};
  HostileSession sleeper_{agent_.socket()};
  Fd ear_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<shm::ReservedItem> held_;
};

INSTANTIATE_TEST_SUITE_P(, SleepingClient,
                         ::testing::Values(shm::kClientInFutex, shm::kClientInPoll),
                         [](const ::testing::TestParamInfo<std::uint32_t>& how) {
                           return how.param == shm::kClientInFutex ? "InAFutex" : "InAPoll";
                         });

TEST_P(SleepingClient, IsWokenWhenRoomIsFoundForWhatHasWaited) {
  ask_for_room(now_ns() + kWatchdogNs);
  ASSERT_NO_FATAL_FAILURE(await_idle_agent());
  fall_asleep();
  ASSERT_FALSE(sleeper_.has_answer());
  free_some();
  EXPECT_TRUE(woken());
  ASSERT_TRUE(sleeper_.has_answer());
  EXPECT_EQ(sleeper_.answer()->status, MC_OK);
}

TEST_P(SleepingClient, IsWokenWhenWhatHasWaitedIsPastItsDeadline) {
  // The answer must come after the agent has stopped polling, also on a slow host. Until then the
  // client does not sleep, and tries again.
  for (std::uint64_t wait_ns = 50'000'000; wait_ns < kWatchdogNs; wait_ns *= 2) {
    ask_for_room(now_ns() + wait_ns);
    ASSERT_NO_FATAL_FAILURE(await_idle_agent());
    fall_asleep();
    if (!sleeper_.has_answer()) break;
    EXPECT_EQ(sleeper_.answer()->status, MC_NO_SPACE);
    shm::announce_client_awake(header());
  }
  EXPECT_TRUE(woken());
  EXPECT_EQ(sleeper_.answer().value().status, MC_NO_SPACE);
}

TEST_P(SleepingClient, IsWokenByTheAnswerToWhatItHasJustAsked) {
  for (int round = 0; round < 200; ++round) {
    fall_asleep();
    shm::Request noop{};
    noop.request_id = static_cast<std::uint64_t>(round);
    sleeper_.publish(shm::to_words(noop));
    ASSERT_TRUE(woken()) << "round " << round;
    ASSERT_EQ(sleeper_.answer().value().request_id, noop.request_id);
  }
}

}  // namespace

}  // namespace mc::hostile
