// SPDX-License-Identifier: Apache-2.0
//
// Large numbers of every resource that a client may have once.
#include <sys/wait.h>
#include <unistd.h>

#include "attack_test.h"
#include "libmc/base/clock.h"

namespace mc::hostile {

namespace {

using Flood = AttackTest;

TEST_F(Flood, TwoThousandConnectsAndDisconnectsLeaveNothing) {
  const shm::ClientHello hello = make_hello();
  const int count = is_long_run() ? 100'000 : 2'000;
  for (int i = 0; i < count; ++i) {
    auto socket = connect_unix(socket_path(), kWatchdogNs);
    ASSERT_TRUE(socket.has_value());
    if (i % 3 == 0) static_cast<void>(send_message(socket->get(), bytes_of(hello)).ok());
    if (i % 3 == 1) {
      const auto half = bytes_of(hello).first(17);
      static_cast<void>(send_message(socket->get(), half).ok());
    }
  }
  EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
  // A session whose welcome was never read ends with its connection. The honest session remains.
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (session_count() > 1 && now_ns() < deadline_ns) continue;
  EXPECT_EQ(session_count(), 1u);
}

TEST_F(Flood, SilentConnectionsDoNotKeepOthersOut) {
  std::vector<Fd> silent;
  for (int i = 0; i < 1500; ++i) {
    auto socket = connect_unix(socket_path(), kWatchdogNs);
    ASSERT_TRUE(socket.has_value());
    silent.push_back(std::move(*socket));
  }
  HonestClient late(socket_path());
  EXPECT_TRUE(late.works_on(20)) << late.trouble();
  EXPECT_FALSE(agent_.ask("status").isNull());
  late.stop();
}

TEST_F(Flood, AProcessThatEndsInMidRequestLeavesNothing) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      HostileSession session(socket_path(), "default", 2);
      if (!session.open_channel(0) || !session.open_channel(1)) ::_exit(1);
      static_cast<void>(session.open_staging(1 << 20));
      session.reserve(65536, 32);
      for (int i = 0; i < 200; ++i) {
        shm::PutItem item{};
        item.length = 1 << 20;
        session.publish(shm::to_words(
            session.items(shm::Op::kPutStaged, {{item, "half-" + std::to_string(i)}})));
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (session_count() > 1 && now_ns() < deadline_ns) {
  }
  EXPECT_EQ(session_count(), 1u);
  const Json::Value space = agent_.ask("status")["namespaces"][0];
  const Json::Value sessions = agent_.ask("status")["sessions"];
  EXPECT_EQ(space["reservations"].asUInt64(), sessions[0]["reservations"].asUInt64());
}

TEST_F(Flood, SessionsInTheHundredsComeAndGo) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<HostileSession>> sessions;
    for (int i = 0; i < 300; ++i) {
      sessions.push_back(std::make_unique<HostileSession>(socket_path()));
      ASSERT_TRUE(sessions.back()->open()) << sessions.back()->refusal();
      ASSERT_TRUE(i % 10 != 0 || sessions.back()->open_channel());
    }
    EXPECT_EQ(session_count(), 301u);
    sessions.clear();
    EXPECT_EQ(session_count(), 1u);
  }
}

}  // namespace

}  // namespace mc::hostile
