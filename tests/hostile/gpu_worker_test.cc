// SPDX-License-Identifier: Apache-2.0
//
// Processes of an agent, of a worker with the fake driver, and of clients that die or ask for the memory of
// others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "device/client_lane.h"
#include "hostile/gpu_host.h"
#include "hostile/hostile_session.h"
#include "patience.h"

namespace mc::hostile {
namespace {

using device::testing::ClientLane;

constexpr std::uint64_t kTheirBytes = 2 * kMiB;

std::size_t fds_of(int pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class GpuWorker : public GpuHost {
 protected:
  GpuWorker() {
    theirs_ = peer_->allocate(kTheirBytes);
    peer_->fill(theirs_, kTheirBytes, 8);
  }
  // The answer to the wish for a lane; empty: the agent is gone.
  static Message ask_for_lane(const HostileSession& session, unsigned device) {
    struct {
      shm::ControlHeader header = make_control(shm::ControlType::kOpenLane);
      unsigned char uuid[16] = {0xfa};
    } message;
    message.header.text_bytes = sizeof message.uuid;
    message.uuid[15] = static_cast<unsigned char>(device);
    return converse(session.socket(), bytes_of(message));
  }
  // A lane of the session, when the worker has said hello; null: the agent is gone.
  std::unique_ptr<ClientLane> open_lane(const HostileSession& session) {
    std::unique_ptr<ClientLane> lane;
    EXPECT_TRUE(until([&] {
      for (const unsigned device : {0U, 1U}) {  // the worker's first device is one of the two
        Message answer = ask_for_lane(session, device);
        if (answer.bytes.empty()) return true;
        if (answer.fds.size() != 5) continue;
        lane = std::make_unique<ClientLane>(std::move(answer.fds[0]), std::move(answer.fds[1]),
                                            std::move(answer.fds[2]), std::move(answer.fds[3]));
        worker_end_ = std::move(answer.fds[4]);
        return true;
      }
      return false;
    }));
    return lane;
  }
  bool worker_has_ended() {
    pollfd end{worker_end_.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) == 1;
  }
  static shm::LaneCopy item(std::uint64_t offset, std::uint64_t bytes) {
    return {1, 0, offset, bytes, static_cast<std::uint32_t>(shm::LaneMemory::kPool), 0};
  }
  // Copies when the worker has pinned the memory.
  static int copy(ClientLane& lane, const shm::LaneCopy& item) {
    int status = MC_BUSY;
    EXPECT_TRUE(until([&] { return (status = lane.copy({item})) != MC_BUSY; }));
    return status;
  }
  int open_memory(ClientLane& lane) { return lane.open(1, peer_->share(theirs_), kTheirBytes); }
  // A lane of a new session, whose worker has the peer's memory open; null: that failed.
  std::unique_ptr<ClientLane> open_lane_and_memory(HostileSession& session) {
    if (!session.open_channel()) return nullptr;
    auto lane = open_lane(session);
    return lane != nullptr && open_memory(*lane) == MC_OK ? std::move(lane) : nullptr;
  }
  // A session's reservation of 4 KiB gets bytes of the peer's memory, and the session leaves.
  void copy_once() {
    HostileSession session(agent_->socket());
    ASSERT_TRUE(session.open_channel());
    const auto reserved = session.reserve(4096, 1);
    ASSERT_FALSE(reserved.empty());
    const std::uint64_t offset = reserved[0].extents[0].offset_bytes;
    const auto lane = open_lane(session);
    ASSERT_NE(lane, nullptr);
    ASSERT_EQ(open_memory(*lane), MC_OK);
    ASSERT_EQ(copy(*lane, item(offset, 4096)), MC_OK);
    EXPECT_EQ(byte_at(session, offset), 8);
    EXPECT_EQ(byte_at(session, offset + 4095), 8);
  }
  static int byte_at(const HostileSession& session, std::uint64_t offset) {
    const Mapping pool =
        Mapping::map(session.pool_fds()[0].get(), offset + 1, Mapping::Access::kRead).value();
    return std::to_integer<int>(pool.data()[offset]);
  }
  std::uint64_t pool_bytes() {
    return agent_->ask("status")["namespaces"][0]["reserved_bytes"].asUInt64();
  }
  void resize(std::uint64_t bytes) {
    Json::Value request;
    request["verb"] = "resize";
    request["namespace"] = "default";
    request["pool_bytes"] = Json::UInt64{bytes};
    EXPECT_FALSE(agent_->order(request).isMember("error"));
  }

  std::uint64_t theirs_ = 0;
  Fd worker_end_;
};

TEST_F(GpuWorker, CopiesIntoAReservationAndClosesTheMemoryOfAClientThatLeaves) {
  start_agent("0");
  copy_once();
  EXPECT_TRUE(all_sessions_have_ended());
  // The session has said goodbye, and the worker has closed the memory: the owner may free the memory.
  EXPECT_EQ(peer_->tell_of("free", theirs_), "ok");
}

TEST_F(GpuWorker, AWorkerMayDieAndTheAgentStartsTheNextOne) {
  start_agent("0");
  HostileSession session(agent_->socket());
  ASSERT_TRUE(session.open_channel());
  auto lane = open_lane(session);
  ASSERT_NE(lane, nullptr);
  ASSERT_EQ(open_memory(*lane), MC_OK);
  const int first = worker_pid();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(until([&] { return worker_has_ended(); })) << "the client sees the worker's end";
  worker_pid(first);
  lane = open_lane(session);
  ASSERT_NE(lane, nullptr);
  ASSERT_EQ(open_memory(*lane), MC_OK);
  EXPECT_EQ(copy(*lane, item(0, 4096)), MC_OK);
}

TEST_F(GpuWorker, NoWorkerIsStartedAgainWhereThereIsNoSuchGpu) {
  start_agent("0,7");
  worker_pid();
  EXPECT_TRUE(until([&] {
    const std::string log = agent_->log();
    return log.find("effect=\"not started again\"") != std::string::npos &&
           log.find("there is no GPU 7") != std::string::npos;
  })) << agent_->log();
}

TEST_F(GpuWorker, AClientsMemoryWaitsForASilentWorkerUntilTheAgentKillsTheWorker) {
  start_agent("0");
  {
    HostileSession session(agent_->socket());
    ASSERT_TRUE(session.open_channel());
    ASSERT_FALSE(session.reserve(4096, 1).empty());
    const auto lane = open_lane(session);
    ASSERT_NE(lane, nullptr);
    ASSERT_EQ(open_memory(*lane), MC_OK);
    ::kill(worker_pid(), SIGSTOP);
  }
  const Json::Value status = agent_->ask("status");
  EXPECT_EQ(status["sessions"].size(), 1u) << "a copy may be under way";
  EXPECT_GE(status["session_reserved_bytes"].asUInt64(), 4096u);
  EXPECT_TRUE(all_sessions_have_ended());
  EXPECT_TRUE(worker_has_ended());
  EXPECT_NE(agent_->log().find("event=gpu_worker_silent"), std::string::npos);
}

TEST_F(GpuWorker, TheNextAgentEndsTheWorkersOfTheAgentThatCrashed) {
  start_agent("0");
  const HostileSession session(agent_->socket());
  ASSERT_NE(open_lane(session), nullptr);
  const int first = worker_pid();
  ::kill(first, SIGSTOP);  // so that the worker does not end by itself
  agent_->crash();
  EXPECT_TRUE(until([&] { return worker_has_ended(); })) << agent_->log();
  worker_pid(first);
  copy_once();
}

TEST_F(GpuWorker, APoolGrowsAgainWhenTheWorkersHaveUnpinnedWhatItGaveBack) {
  start_agent("0");
  const int pid = worker_pid();
  HostileSession session(agent_->socket());
  ASSERT_TRUE(session.open_channel());
  const auto lane = open_lane(session);
  ASSERT_NE(lane, nullptr);
  ASSERT_EQ(open_memory(*lane), MC_OK);
  ASSERT_EQ(copy(*lane, item(60 * kMiB, 4096)), MC_OK);
  ::kill(pid, SIGSTOP);
  resize(16 * kMiB);
  ASSERT_TRUE(until([&] { return pool_bytes() == 16 * kMiB; }));
  resize(64 * kMiB);
  ::poll(nullptr, 0, 500);  // several ticks of the agent
  EXPECT_EQ(pool_bytes(), 16 * kMiB);
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(until([&] { return pool_bytes() == 64 * kMiB; }));
  EXPECT_EQ(byte_at(session, 60 * kMiB), 0) << "new memory";
  ASSERT_EQ(copy(*lane, item(60 * kMiB, 4096)), MC_OK);
  EXPECT_EQ(byte_at(session, 60 * kMiB), 8) << "the copy went to the old pages";
}

TEST_F(GpuWorker, WhatAClientForgesIsRefusedAndOtherClientsAreServed) {
  start_agent("0");
  HostileSession good_session(agent_->socket()), session(agent_->socket());
  ASSERT_TRUE(session.open_channel());
  const auto good = open_lane_and_memory(good_session);
  const auto lane = open_lane(session);
  ASSERT_TRUE(good != nullptr && lane != nullptr);
  const int pid = worker_pid();
  std::minstd_rand chance(3);
  CUipcHandle forged{};
  for (auto& byte : forged.bytes) byte = static_cast<unsigned char>(chance());
  EXPECT_EQ(lane->open(1, forged, kMiB), MC_DEVICE_FAILED);
  const std::uint64_t freed = peer_->allocate(kTheirBytes);
  const CUipcHandle stale = peer_->share(freed);
  EXPECT_EQ(peer_->tell_of("free", freed), "ok");
  EXPECT_EQ(lane->open(1, stale, kTheirBytes), MC_DEVICE_FAILED);
  EXPECT_EQ(lane->open(1, peer_->share(theirs_), 64 * kMiB), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane->open(1, peer_->share(theirs_), ~std::uint64_t{0}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane->copy({item(0, 4096)}), MC_NOT_FOUND) << "memory of another client";
  for (int i = 0; i < 1000; ++i) {
    shm::RecordWords words;
    for (auto& word : words) word = chance() % 4 == 0 ? chance() % 8 : chance() * 0x100000001ULL;
    lane->publish(std::bit_cast<shm::LaneRequest>(words));
    EXPECT_TRUE(until([&] { return lane->poll().has_value(); }));
    if (i % 50 == 0) {
      EXPECT_EQ(copy(*good, item(0, 4096)), MC_OK);
    }
  }
  EXPECT_EQ(worker_pid(), pid);
  EXPECT_EQ(ask_for_lane(session, 9).fds.size(), 0u) << "no such device";
}

TEST_F(GpuWorker, AClientThatTakesTheRingsOfItsBellBlocksNoWorker) {
  start_agent("0");
  HostileSession good_session(agent_->socket()), session(agent_->socket());
  ASSERT_TRUE(session.open_channel());
  const auto good = open_lane_and_memory(good_session);
  const auto lane = open_lane(session);
  ASSERT_TRUE(good != nullptr && lane != nullptr);
  const int pid = worker_pid();
  const int bell = lane->worker_bell();
  ::fcntl(bell, F_SETFL, 0);  // the worker's descriptor, too: a read without a ring would block
  const pid_t thief = ::fork();
  if (thief == 0) {
    std::uint64_t rings = 0;
    for (std::uint64_t i = 0;; ++i) {
      pollfd ring{bell, POLLIN, 0};
      static_cast<void>(::poll(&ring, 1, -1));
      for (const std::uint64_t start = now_ns(); now_ns() < start + i * 170 % 20'000;) continue;
      static_cast<void>(!::read(bell, &rings, sizeof rings));
    }
  }
  EXPECT_EQ(copy(*good, item(0, 4096)), MC_OK);
  for (int i = 0; i < 600 && !HasFailure(); ++i) {
    signal_eventfd(bell);
    ::usleep(50);
    good->publish(good->copies({item(0, 4096)}));
    std::optional<shm::LaneCompletion> answer;
    EXPECT_TRUE(until([&] {
      for (int look = 0; look < 10'000 && !answer; ++look) answer = good->poll();
      return answer.has_value();
    }));
    ::usleep(100);  // the worker sleeps
  }
  ::kill(thief, SIGKILL);
  EXPECT_EQ(::waitpid(thief, nullptr, 0), thief);
  EXPECT_EQ(worker_pid(), pid);
}

TEST_F(GpuWorker, CopiesMayCrossAndMeetTheEndsOfPinnedPieces) {
  start_agent("0");
  HostileSession session(agent_->socket());
  const auto lane = open_lane_and_memory(session);
  ASSERT_NE(lane, nullptr);
  constexpr std::uint64_t kEnd = 16 * kMiB;  // PinnedMemory::kPieceBytes
  ASSERT_EQ(copy(*lane, item(kEnd - 2048, 4096)), MC_OK);
  EXPECT_EQ(byte_at(session, kEnd - 2048), 8);
  EXPECT_EQ(byte_at(session, kEnd + 2047), 8);
  shm::LaneCopy second = item(2 * kEnd, 4096);
  second.device_offset = 4096;
  ASSERT_EQ(copy(*lane, second), MC_OK) << "the memory is pinned";
  ASSERT_EQ(lane->copy({item(2 * kEnd - 4096, 4096), second}), MC_OK);
  EXPECT_EQ(byte_at(session, 2 * kEnd - 1), 8);
  EXPECT_EQ(byte_at(session, 2 * kEnd + 4095), 8);
}

TEST_F(GpuWorker, CopiesMemoryThatItsOwnerMadeOfChunks) {
  start_agent("0");
  HostileSession session(agent_->socket());
  ASSERT_TRUE(session.open_channel());
  const auto lane = open_lane(session);
  ASSERT_NE(lane, nullptr);
  const std::uint64_t chunks = peer_->number("chunks 2");
  peer_->fill(chunks, 4 * kMiB, 6);
  const Fd first = peer_->chunk(0), second = peer_->chunk(1);
  ASSERT_EQ(lane->add_chunks(1, 4 * kMiB, {first.get(), second.get()}, {2 * kMiB, 2 * kMiB}),
            MC_OK);
  shm::LaneCopy both = item(kMiB, 4096);
  both.device_offset = 2 * kMiB - 2048;
  ASSERT_EQ(copy(*lane, both), MC_OK);
  EXPECT_EQ(byte_at(session, kMiB), 6);
  EXPECT_EQ(byte_at(session, kMiB + 4095), 6);
}

TEST_F(GpuWorker, AClientHasAsManyLanesAsChannels) {
  start_agent("0");
  const HostileSession session(agent_->socket());
  std::size_t lanes = 0;
  while (lanes < 100 && open_lane(session) != nullptr) {
    ++lanes;
    if (lanes == MC_MAX_CHANNELS) break;
  }
  EXPECT_EQ(lanes, MC_MAX_CHANNELS);
  for (const unsigned device : {0U, 1U}) EXPECT_TRUE(ask_for_lane(session, device).fds.empty());
}

// The long form has 10,000 sessions.
TEST_F(GpuWorker, SessionsLeaveNothingInAgentAndWorker) {
  start_agent("0");
  const int pid = worker_pid();
  copy_once();
  ASSERT_TRUE(all_sessions_have_ended());
  const std::size_t agent_fds = agent_->fd_count(), worker_fds = fds_of(pid);
  const unsigned sessions = std::getenv("MC_TEST_LONG") != nullptr ? 10'000 : 100;
  for (unsigned i = 0; i < sessions && !HasFatalFailure(); ++i) copy_once();
  ASSERT_TRUE(all_sessions_have_ended());
  EXPECT_EQ(worker_pid(), pid);
  EXPECT_TRUE(until([&] { return agent_->fd_count() <= agent_fds && fds_of(pid) == worker_fds; }))
      << agent_->fd_count() << " and " << fds_of(pid) << ", earlier " << agent_fds << " and "
      << worker_fds;
  EXPECT_TRUE(until([&] { return counters()["allocations_opened"].asUInt64() == sessions + 1; }));
  EXPECT_EQ(counters()["allocations"].asUInt64(), 0u);
  EXPECT_EQ(counters()["clients"].asUInt64(), 0u);
}

// ---- Death at each step -----------------------------------------------------------------------

class GpuWorkerDies : public GpuWorker, public ::testing::WithParamInterface<const char*> {};

TEST_P(GpuWorkerDies, AndNothingIsLostOrHeld) {
  const std::string step = GetParam();
  const bool in_agent = step.starts_with("workers.");
  start_agent("none", in_agent ? step + "=kill" : "");
  start_worker(in_agent ? "" : step + "=kill");
  {
    // Everything may fail here: the victim dies at some time.
    HostileSession session(agent_->socket());
    const auto lane = session.open_channel() ? open_lane(session) : nullptr;
    if (lane != nullptr) {
      ClientLane& used = *lane;
      const auto send = [&](const shm::LaneRequest& request) {
        used.publish(request);
        until([&] { return used.poll().has_value() || worker_has_ended(); });
      };
      const CUipcHandle handle = peer_->share(theirs_);
      std::memcpy(used.lane().arguments, handle.bytes, sizeof handle.bytes);
      send(ClientLane::request(shm::LaneOp::kOpenMemory, 0, sizeof handle.bytes, 1, kTheirBytes));
      until([&] {
        return worker_has_ended() || !agent_->alive() ||
               counters()["pinned_bytes"].asUInt64() == 64 * kMiB;
      });
      if (step == "gpu.range_reserved") {
        peer_->number("chunks 1");
        const Fd chunk = peer_->chunk(0);
        used.send_descriptors({chunk.get()});
        const std::uint64_t bytes = 2 * kMiB;
        std::memcpy(used.lane().arguments, &bytes, sizeof bytes);
        send(ClientLane::request(shm::LaneOp::kAddChunks, 1, sizeof bytes, 2, bytes));
      }
      send(used.copies({item(0, 4096)}));
      if (step == "gpu.unpinned") resize(16 * kMiB);
    }
  }
  if (in_agent) {
    EXPECT_TRUE(until([&] { return !agent_->alive(); }));
    agent_->crash();
  } else {
    EXPECT_TRUE(until([&] { return worker_has_ended() || counters().isNull(); }));
    EXPECT_TRUE(all_sessions_have_ended());
    EXPECT_EQ(agent_->ask("status")["session_reserved_bytes"].asUInt64(), 0u);
  }
  start_worker();
  copy_once();
  workers_.clear();
  EXPECT_TRUE(until([&] { return counters().isNull(); }));
  EXPECT_EQ(peer_->tell_of("free", theirs_), "ok") << "no process has the memory open";
}

INSTANTIATE_TEST_SUITE_P(Steps, GpuWorkerDies,
                         ::testing::Values("gpu.lane_added", "gpu.memory_opened",
                                           "gpu.range_reserved", "gpu.copy_submitted",
                                           "gpu.copy_ended", "gpu.client_ended", "gpu.unpinned",
                                           "workers.attached", "workers.lane_opened",
                                           "workers.client_ends"));

}  // namespace
}  // namespace mc::hostile
