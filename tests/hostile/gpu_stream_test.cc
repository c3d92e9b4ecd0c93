// SPDX-License-Identifier: Apache-2.0
//
// An engine reads and writes parts of objects in the order of a stream, while workers die.
#include <signal.h>

#include "hostile/gpu_host.h"

namespace mc::hostile {
namespace {

constexpr std::uint64_t kBytes = 4 * kMiB;

class GpuStream : public GpuHost {
 protected:
  GpuStream() : GpuHost(true) {}

  void connect(std::uint64_t bytes = kBytes) {
    EXPECT_TRUE(until([&] { return counters()["pinned_bytes"].asUInt64() == kPoolBytes; }));
    ASSERT_EQ(peer_->tell("connect " + agent_->socket()), "MC_OK");
    memory_ = peer_->allocate(bytes);
    ASSERT_EQ(peer_->tell(peer_->place("register", memory_, bytes)), "MC_OK");
  }
  void serve() {
    start_agent("0");
    connect();
  }
  std::string tell(const std::string& command) { return peer_->tell(command); }
  // "read" or "write" of a part of an object and the memory, at the same offsets.
  std::string copy(const std::string& command, const std::string& name, std::uint64_t offset,
                   std::uint64_t bytes) {
    return tell(
        peer_->place(command + " " + name + " " + std::to_string(offset), memory_ + offset, bytes));
  }
  // In the order of the stream.
  void repaint(int seed) {
    ASSERT_EQ(tell(peer_->place("repaint", memory_, kBytes) + std::to_string(seed)), "ok");
  }
  std::uint64_t worker_bytes() {
    return agent_->ask("status")["sessions"][0]["device_copies"]["worker_bytes"].asUInt64();
  }
  // Writes an object while the stream is held, and overwrites the memory behind the copy.
  void write_while_held(const std::string& name, int seed) {
    ASSERT_EQ(tell("hold"), "ok");
    write(name, seed);
  }
  // Without a worker the calls wait for the stream.
  void write(const std::string& name, int seed) {
    ASSERT_EQ(tell("reserve " + name + " " + std::to_string(kBytes)), "MC_OK");
    repaint(seed);
    for (std::uint64_t layer = 0; layer < kBytes; layer += kMiB) {
      ASSERT_EQ(copy("write", name, layer, kMiB), "MC_OK");
    }
    repaint(seed + 1);
  }
  void commit_and_check(const std::string& name, int seed) {
    ASSERT_EQ(tell("commit " + name + " " + std::to_string(kBytes)), "MC_OK");
    ASSERT_EQ(tell("sync"), "ok");
    EXPECT_EQ(peer_->check(memory_, kBytes, seed + 1), "ok") << "the later work of the stream";
    ASSERT_EQ(tell(peer_->place("get " + name, memory_, kBytes)), "MC_OK");
    EXPECT_EQ(peer_->check(memory_, kBytes, seed), "ok");
  }

  // Gets four objects, whose bytes lie one after the other in memory.
  void get_and_check(const std::string& name, int seed, std::uint64_t bytes = kMiB) {
    ASSERT_EQ(tell("sync"), "ok");
    ASSERT_EQ(tell(peer_->place("gets " + name + " 4", memory_, bytes)), "MC_OK");
    EXPECT_EQ(peer_->check(memory_, 4 * bytes, seed), "ok");
  }

  std::uint64_t memory_ = 0;
};

TEST_F(GpuStream, AWriteComesAfterEarlierAndBeforeLaterWork) {
  serve();
  for (int i = 0; i < 5 && !HasFatalFailure(); ++i) {
    const std::string name = "object" + std::to_string(i);
    write_while_held(name, 10 * i);
    ASSERT_EQ(tell("finish"), "ok");
    commit_and_check(name, 10 * i);
  }
  EXPECT_TRUE(until([&] { return worker_bytes() == 10 * kBytes; }))
      << "no copy was the client's own";
}

TEST_F(GpuStream, AReadComesAfterEarlierAndBeforeLaterWork) {
  serve();
  write_while_held("object", 1);
  ASSERT_EQ(tell("finish"), "ok");
  commit_and_check("object", 1);
  ASSERT_EQ(tell("view object"), "MC_OK");
  ASSERT_EQ(tell("hold"), "ok");
  repaint(50);
  ASSERT_EQ(copy("read", "object", kMiB, 2 * kMiB), "MC_OK");
  // The stream writes what was read as another object.
  ASSERT_EQ(tell("reserve second " + std::to_string(kBytes)), "MC_OK");
  ASSERT_EQ(copy("read", "object", 0, kMiB), "MC_OK");
  ASSERT_EQ(copy("read", "object", 3 * kMiB, kMiB), "MC_OK");
  ASSERT_EQ(copy("write", "second", 0, kBytes), "MC_OK");
  ASSERT_EQ(tell("finish"), "ok");
  ASSERT_EQ(tell("commit second " + std::to_string(kBytes)), "MC_OK");
  ASSERT_EQ(tell("release object"), "MC_OK");
  repaint(60);
  ASSERT_EQ(tell("sync"), "ok");
  ASSERT_EQ(tell(peer_->place("get second", memory_, kBytes)), "MC_OK");
  EXPECT_EQ(peer_->check(memory_, kBytes, 1), "ok");
}

// The objects were removed, and their room was wanted, while the stream had not come to the copies.
TEST_F(GpuStream, AGetComesAfterEarlierAndBeforeLaterWork) {
  serve();
  ASSERT_EQ(tell(peer_->place("paint", memory_, kBytes) + "1"), "ok");
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::string put = "put object" + std::to_string(i);
    ASSERT_EQ(tell(peer_->place(put, memory_ + i * kMiB, kMiB)), "MC_OK");
  }
  const std::string all = peer_->place("gets_in_order object 4", memory_, kMiB);
  ASSERT_EQ(tell("hold"), "ok");
  repaint(2);
  ASSERT_EQ(tell(all), "MC_OK");
  for (int i = 0; i < 4; ++i) ASSERT_EQ(tell("remove object" + std::to_string(i)), "MC_OK");
  const std::uint64_t other = peer_->allocate(kMiB);
  for (int i = 0; i < 80; ++i) {
    const std::string put = "put other" + std::to_string(i);
    ASSERT_EQ(tell(peer_->place(put, other, kMiB)), "MC_OK");
  }
  EXPECT_EQ(tell(all), "MC_NOT_FOUND MC_NOT_FOUND MC_NOT_FOUND MC_NOT_FOUND ");
  ASSERT_EQ(tell("finish"), "ok");
  ASSERT_EQ(tell("sync"), "ok");
  EXPECT_EQ(peer_->check(memory_, kBytes, 1), "ok");
}

TEST_F(GpuStream, APutComesAfterEarlierAndBeforeLaterWork) {
  serve();
  for (int i = 0; i < 5 && !HasFatalFailure(); ++i) {
    const std::string name = "object" + std::to_string(i) + "-";
    repaint(10 * i);
    ASSERT_EQ(tell(peer_->place("puts_in_order " + name + " 4", memory_, kMiB)), "MC_OK");
    repaint(10 * i + 1);
    get_and_check(name, 10 * i);
  }
}

TEST_F(GpuStream, AnAsynchronousPutDoesNotWaitForTheStream) {
  serve();
  // Room for small values comes from a cache, room for large ones from the agent.
  for (const std::uint64_t bytes : {std::uint64_t{4096}, kMiB}) {
    const std::string name = "object" + std::to_string(bytes) + "-";
    ASSERT_EQ(tell("hold"), "ok");
    repaint(5);
    ASSERT_EQ(tell(peer_->place("puts_later " + name + " 4", memory_, bytes)), "MC_OK");
    repaint(6);
    EXPECT_EQ(tell("await 20"), "MC_TIMEOUT");
    EXPECT_EQ(tell("view " + name + "0"), "MC_NOT_FOUND");
    ASSERT_EQ(tell("finish"), "ok");
    EXPECT_EQ(tell("await 10000"), "MC_OK");
    get_and_check(name, 5, bytes);
  }
  EXPECT_TRUE(until([&] { return worker_bytes() >= 2 * kBytes; }))
      << "no copy was the client's own";
}

TEST_F(GpuStream, APutEndsByItsDeadlineThoughTheStreamDoesNotCome) {
  serve();
  ASSERT_EQ(tell("hold"), "ok");
  const std::string late = "MC_TIMEOUT MC_TIMEOUT MC_TIMEOUT MC_TIMEOUT ";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(tell(peer_->place("puts_briefly late 4", memory_, kMiB)), late);
  }
  const auto reserved = [&] {
    return agent_->ask("status")["sessions"][0]["reserved_bytes"].asUInt64();
  };
  EXPECT_TRUE(until([&] { return reserved() >= 20 * kMiB; }));
  ASSERT_EQ(tell("finish"), "ok");
  ASSERT_EQ(tell("sync"), "ok");
  EXPECT_EQ(tell("view late0"), "MC_NOT_FOUND");
  repaint(1);
  ASSERT_EQ(tell(peer_->place("puts_in_order object 4", memory_, kMiB)), "MC_OK");
  repaint(2);
  get_and_check("object", 1);
  EXPECT_TRUE(until([&] { return reserved() < 10 * kMiB; })) << "the room of the late puts";
}

TEST_F(GpuStream, APutOfAWorkerThatDiesEndsWithTheRightBytes) {
  serve();
  const int pid = worker_pid();
  ASSERT_EQ(tell("hold"), "ok");
  repaint(5);
  ASSERT_EQ(tell(peer_->place("puts_later object 4", memory_, kMiB)), "MC_OK");
  repaint(6);
  ::kill(pid, SIGKILL);
  ASSERT_EQ(tell("finish"), "ok");
  EXPECT_EQ(tell("await 10000"), "MC_OK");
  get_and_check("object", 5);
}

TEST_F(GpuStream, AClientThatLeavesBeforeItsPutsEndLeavesNothing) {
  serve();
  ASSERT_EQ(tell("hold"), "ok");
  ASSERT_EQ(tell(peer_->place("puts_later object 4", memory_, kMiB)), "MC_OK");
  ASSERT_EQ(tell("finish"), "ok");
  peer_->tell("leave");
  EXPECT_TRUE(all_sessions_have_ended());
}

TEST_F(GpuStream, AHostWithoutWorkersPutsOnTheStream) {
  start_agent("none");
  ASSERT_EQ(tell("connect " + agent_->socket()), "MC_OK");
  memory_ = peer_->allocate(kBytes);
  for (const std::string command : {"puts_in_order", "puts_later"}) {
    repaint(1);
    ASSERT_EQ(tell(peer_->place(command + " " + command + " 4", memory_, kMiB)), "MC_OK");
    repaint(2);
    if (command == "puts_later") {
      EXPECT_EQ(tell("await 10000"), "MC_OK");
    }
    get_and_check(command, 1);
  }
}

TEST_F(GpuStream, AGetOfAWorkerThatDiesGoesOnWithTheRightBytes) {
  serve();
  const int pid = worker_pid();
  ASSERT_EQ(tell(peer_->place("paint", memory_, kBytes) + "1"), "ok");
  ASSERT_EQ(tell(peer_->place("put object0", memory_, kBytes)), "MC_OK");
  ASSERT_EQ(tell("hold"), "ok");
  repaint(2);
  ASSERT_EQ(tell(peer_->place("gets_in_order object 1", memory_, kBytes)), "MC_OK");
  ::kill(pid, SIGKILL);
  ASSERT_EQ(tell("finish"), "ok");
  ASSERT_EQ(tell("sync"), "ok");
  EXPECT_EQ(peer_->check(memory_, kBytes, 1), "ok");
}

TEST_F(GpuStream, AStreamThatWaitsForAWorkerThatDiesGoesOnWithTheRightBytes) {
  serve();
  const int pid = worker_pid();
  write_while_held("object", 5);
  ::kill(pid, SIGKILL);
  ASSERT_EQ(tell("finish"), "ok");
  commit_and_check("object", 5);
}

TEST_F(GpuStream, AStreamOutlivesTheNamespaceOfItsCopies) {
  start_agent("0");
  Json::Value request;
  request["verb"] = "create_namespace";
  request["name"] = "guests";
  request["pool_bytes"] = Json::UInt64{kPoolBytes};
  ASSERT_EQ(agent_->order(request)["namespace"], "guests");
  ASSERT_TRUE(until([&] { return counters()["pinned_bytes"].asUInt64() == 2 * kPoolBytes; }));
  ASSERT_EQ(tell("connect " + agent_->socket() + " guests"), "MC_OK");
  memory_ = peer_->allocate(kBytes);
  ASSERT_EQ(tell(peer_->place("register", memory_, kBytes)), "MC_OK");
  write_while_held("object", 3);
  request["verb"] = "drop_namespace";
  ASSERT_TRUE(until([&] { return agent_->order(request).isMember("sessions_ended"); }));
  ASSERT_EQ(tell("finish"), "ok");
  ASSERT_EQ(tell("sync"), "ok");
  EXPECT_EQ(peer_->check(memory_, kBytes, 4), "ok");
  EXPECT_NE(tell("commit object " + std::to_string(kBytes)), "MC_OK");
}

TEST_F(GpuStream, AHostWithoutWorkersCopiesOnTheStream) {
  start_agent("none");
  ASSERT_EQ(tell("connect " + agent_->socket()), "MC_OK");
  memory_ = peer_->allocate(kBytes);
  ASSERT_EQ(tell("reserve object " + std::to_string(kBytes)), "MC_OK");
  repaint(1);
  ASSERT_EQ(copy("write", "object", 0, kBytes), "MC_OK");
  repaint(2);
  commit_and_check("object", 1);
  ASSERT_EQ(tell("view object"), "MC_OK");
  repaint(3);
  ASSERT_EQ(copy("read", "object", 0, kBytes), "MC_OK");
  ASSERT_EQ(tell("sync"), "ok");
  EXPECT_EQ(peer_->check(memory_, kBytes, 1), "ok");
}

TEST_F(GpuStream, PartsBeyondTheEndAndCapturedStreamsAreRefused) {
  serve();
  ASSERT_EQ(tell("reserve object 4096"), "MC_OK");
  EXPECT_EQ(copy("write", "object", 0, 4097), "MC_INVALID_ARGUMENT");
  EXPECT_EQ(copy("write", "object", 4097, 0), "MC_INVALID_ARGUMENT");
  EXPECT_EQ(copy("write", "object", ~std::uint64_t{0}, 2), "MC_INVALID_ARGUMENT");
  ASSERT_EQ(tell("capture 1"), "ok");
  EXPECT_EQ(copy("write", "object", 0, 4096), "MC_INVALID_ARGUMENT");
  ASSERT_EQ(tell("capture 0"), "ok");
  EXPECT_EQ(copy("write", "object", 0, 4096), "MC_OK");
  ASSERT_EQ(tell("abandon object"), "MC_OK");
}

TEST_F(GpuStream, MoreCopiesThanALaneHasSlotsWaitForRoom) {
  serve();
  ASSERT_EQ(tell("reserve object " + std::to_string(kBytes)), "MC_OK");
  repaint(7);
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(copy("write", "object", static_cast<std::uint64_t>(i) * 4096, 4096), "MC_OK");
  }
  ASSERT_EQ(tell("commit object " + std::to_string(600 * 4096)), "MC_OK");
  repaint(8);
  ASSERT_EQ(tell("sync"), "ok");
  ASSERT_EQ(tell(peer_->place("get object", memory_, 600 * 4096)), "MC_OK");
  EXPECT_EQ(peer_->check(memory_, 600 * 4096, 7), "ok");
}

// ---- Death at each step -----------------------------------------------------------------------

class GpuStreamSees : public GpuStream, public ::testing::WithParamInterface<const char*> {};

TEST_P(GpuStreamSees, AWorkersDeathAsNothing) {
  start_agent("none");
  start_worker(std::string(GetParam()) + "=kill");
  connect();
  write("object", 3);
  commit_and_check("object", 3);
}

INSTANTIATE_TEST_SUITE_P(Steps, GpuStreamSees,
                         ::testing::Values("gpu.lane_added@2", "gpu.copy_submitted",
                                           "gpu.copy_submitted@3", "gpu.copy_ended",
                                           "gpu.copy_ended@2", "gpu.stream_released@4"));

}  // namespace
}  // namespace mc::hostile
