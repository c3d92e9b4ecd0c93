// SPDX-License-Identifier: Apache-2.0
//
// An engine puts and gets device memory through libmc, while workers and agents come, die and refuse.
#include <signal.h>

#include <utility>

#include "hostile/gpu_host.h"

namespace mc::hostile {
namespace {

class GpuClient : public GpuHost {
 protected:
  GpuClient() : GpuHost(true) {}
  void connect() { ASSERT_EQ(peer_->tell("connect " + agent_->socket()), "MC_OK"); }
  // An agent with a worker that has pinned the pool, and a client.
  void serve(std::vector<std::string> flags = {}) {
    start_agent("0", "", std::move(flags));
    await_pins();
    connect();
  }
  void await_pins() {
    EXPECT_TRUE(until([&] { return counter("pinned_bytes") == kPoolBytes; }));
  }
  std::uint64_t counter(const char* name) { return counters()[name].asUInt64(); }
  std::string order(const std::string& command, std::uint64_t address, std::uint64_t bytes) {
    return peer_->tell(peer_->place(command, address, bytes));
  }
  std::string unregister(std::uint64_t address) { return peer_->tell_of("unregister", address); }
  std::string use(const std::string& command, const std::string& key, std::uint64_t address,
                  std::uint64_t bytes) {
    return order(command + " " + key, address, bytes);
  }
  // Puts painted memory and gets the object back there, after other bytes.
  void put_and_get(const std::string& key, std::uint64_t address, std::uint64_t bytes, int seed) {
    peer_->paint(address, bytes, seed);
    ASSERT_EQ(use("put", key, address, bytes), "MC_OK") << key;
    peer_->paint(address, bytes, seed + 1);
    ASSERT_EQ(use("get", key, address, bytes), "MC_OK") << key;
    EXPECT_EQ(peer_->check(address, bytes, seed), "ok") << key;
  }
  // The counts of the only session, when the counts have come to so many bytes.
  Json::Value copies(std::uint64_t worker_bytes, std::uint64_t own_bytes) {
    Json::Value found;
    EXPECT_TRUE(until([&] {
      found = agent_->ask("status")["sessions"][0]["device_copies"];
      return found["worker_bytes"].asUInt64() == worker_bytes &&
             found["own_bytes"].asUInt64() == own_bytes;
    })) << found.toStyledString();
    return found;
  }
  void free(std::uint64_t address) { EXPECT_EQ(peer_->tell_of("free", address), "ok"); }
};

TEST_F(GpuClient, AWorkerCopiesRegisteredMemoryAndOpensEachAllocationOnce) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  for (int i = 0; i < 10; ++i) {
    put_and_get("key" + std::to_string(i), memory + 12345, 2 * kMiB + 77, i);
  }
  EXPECT_EQ(copies(20 * (2 * kMiB + 77), 0)["own_because"].asString(), "");
  EXPECT_TRUE(until([&] { return counter("allocations_opened") == 1; }));
  ASSERT_EQ(unregister(memory), "MC_OK");
  free(memory);
}

TEST_F(GpuClient, TheObjectsOfABatchAreCopiedTogether) {
  serve();
  constexpr std::uint64_t kCount = 300, kBytes = 64 * 1024;
  const std::uint64_t memory = peer_->allocate(kCount * kBytes);
  ASSERT_EQ(order("register", memory, kCount * kBytes), "MC_OK");
  peer_->paint(memory, kCount * kBytes, 1);
  ASSERT_EQ(order("puts key " + std::to_string(kCount), memory, kBytes), "MC_OK");
  copies(kCount * kBytes, 0);
  Json::Value put;
  EXPECT_TRUE(until([&] {
    put = counters();
    return put["bytes_from_device"].asUInt64() == kCount * kBytes;
  }));
  EXPECT_LE(put["requests"].asUInt64(), 8u)
      << "as many at once as the agent grants room for, up to 64";
  peer_->paint(memory, kCount * kBytes, 2);
  ASSERT_EQ(order("gets key " + std::to_string(kCount), memory, kBytes), "MC_OK");
  EXPECT_EQ(peer_->check(memory, kCount * kBytes, 1), "ok");
  EXPECT_TRUE(until([&] { return counter("requests") == put["requests"].asUInt64() + 2; }))
      << "256 objects at once";
}

TEST_F(GpuClient, AnObjectOfABatchThatCannotBeReadHarmsNoOther) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  peer_->paint(memory, 4 * kMiB, 1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(use("put", "key" + std::to_string(i), memory + i * kMiB, kMiB), "MC_OK");
  }
  ASSERT_EQ(peer_->tell("remove key1"), "MC_OK");
  peer_->paint(memory, 4 * kMiB, 2);
  EXPECT_EQ(order("gets key 3", memory, kMiB), "MC_OK MC_NOT_FOUND MC_OK ");
  EXPECT_EQ(peer_->check(memory, kMiB, 1), "ok");
  // The last destination ends beyond its allocation.
  EXPECT_EQ(order("gets key 4", memory + kMiB / 2, kMiB),
            "MC_OK MC_NOT_FOUND MC_OK MC_INVALID_ARGUMENT ");
  EXPECT_EQ(order("gets key 4", memory, kMiB - 1),
            "MC_BUFFER_TOO_SMALL MC_NOT_FOUND MC_BUFFER_TOO_SMALL MC_BUFFER_TOO_SMALL ");
}

TEST_F(GpuClient, AValueOfABatchThatCannotBeReadHarmsNoOther) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  peer_->paint(memory, 4 * kMiB, 1);
  // The last value ends beyond its allocation.
  EXPECT_EQ(order("puts key 3", memory + 3 * kMiB / 2, kMiB), "MC_OK MC_OK MC_INVALID_ARGUMENT ");
  ASSERT_EQ(order("puts other 4", memory, kMiB), "MC_OK");
  peer_->paint(memory, 4 * kMiB, 2);
  EXPECT_EQ(order("gets other 4", memory, kMiB), "MC_OK");
  EXPECT_EQ(peer_->check(memory, 4 * kMiB, 1), "ok");
  peer_->paint(memory, 4 * kMiB, 2);
  EXPECT_EQ(order("gets key 3", memory + 3 * kMiB / 2, kMiB - 1),
            "MC_BUFFER_TOO_SMALL MC_BUFFER_TOO_SMALL MC_NOT_FOUND ");
  EXPECT_EQ(order("gets key 2", memory + 3 * kMiB / 2, kMiB), "MC_OK");
  peer_->paint(memory, 3 * kMiB / 2, 1);
  EXPECT_EQ(peer_->check(memory, 7 * kMiB / 2, 1), "ok");
}

TEST_F(GpuClient, MemoryIsClosedWithItsLastRegistrationAndWithTheClient) {
  serve();
  const std::uint64_t first = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", first, kMiB), "MC_OK");
  ASSERT_EQ(order("register", first + 3 * kMiB, kMiB), "MC_OK");
  put_and_get("key", first, 4 * kMiB, 1);
  ASSERT_EQ(unregister(first), "MC_OK");
  put_and_get("again", first, 4 * kMiB, 2);
  copies(16 * kMiB, 0);
  ASSERT_EQ(unregister(first + 3 * kMiB), "MC_OK");
  free(first);
  const std::uint64_t second = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", second, 4 * kMiB), "MC_OK");
  put_and_get("third", second, 4 * kMiB, 3);
  peer_->tell("leave");
  free(second);
}

TEST_F(GpuClient, MemoryThatIsNotRegisteredGoesThroughBuffers) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  put_and_get("key", memory + 1, 3 * kMiB, 1);
  EXPECT_EQ(copies(0, 6 * kMiB)["own_because"].asString(), "not_registered");
  EXPECT_EQ(counter("allocations_opened"), 0u);
  free(memory);
}

TEST_F(GpuClient, SmallCopiesGoThroughBuffersWithoutComplaint) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  put_and_get("key", memory, 4096, 1);
  EXPECT_EQ(copies(0, 8192)["own_because"].asString(), "");
}

TEST_F(GpuClient, AHostWithoutWorkersCopiesThroughBuffers) {
  start_agent("none");
  connect();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  put_and_get("key", memory, 4 * kMiB, 1);
  EXPECT_EQ(copies(0, 8 * kMiB)["own_because"].asString(), "no_worker");
  ASSERT_EQ(unregister(memory), "MC_OK");
  free(memory);
}

TEST_F(GpuClient, ARangeOfChunksIsCopiedByTheWorker) {
  serve();
  const std::uint64_t chunks = peer_->number("chunks 40");
  ASSERT_EQ(order("register", chunks + 2 * kMiB, 70 * kMiB), "MC_OK");
  put_and_get("key", chunks + 3 * kMiB + 5, 10 * kMiB, 1);
  put_and_get("end", chunks + 70 * kMiB, 2 * kMiB, 2);
  copies(24 * kMiB, 0);
  ASSERT_EQ(unregister(chunks + 2 * kMiB), "MC_OK");
}

TEST_F(GpuClient, ThreadsShareAnAllocationOnce) {
  serve();
  const std::uint64_t chunks = peer_->number("chunks 40");
  ASSERT_EQ(order("register", chunks, 80 * kMiB), "MC_OK");
  peer_->paint(chunks + 77 * kMiB, 2 * kMiB, 5);
  ASSERT_EQ(use("put_by_threads", "key", chunks + 77 * kMiB, 2 * kMiB), "MC_OK");
  copies(16 * kMiB, 0);
  EXPECT_TRUE(until([&] { return counter("allocations_opened") == 1; }));
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(use("get", "key" + std::to_string(i), chunks + 3 * kMiB, 2 * kMiB), "MC_OK");
    EXPECT_EQ(peer_->check(chunks + 3 * kMiB, 2 * kMiB, 5), "ok") << i;
  }
}

TEST_F(GpuClient, NewMemoryAtTheAddressOfRegisteredMemoryIsNotTakenForIt) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  put_and_get("key", memory, 4 * kMiB, 1);
  ASSERT_EQ(unregister(memory), "MC_OK");
  free(memory);
  const std::uint64_t next = peer_->allocate(4 * kMiB);
  put_and_get("next", next, 4 * kMiB, 2);
  EXPECT_EQ(copies(8 * kMiB, 8 * kMiB)["own_because"].asString(), "not_registered");
}

TEST_F(GpuClient, AnIsolatedClientsPutsAreCopiedByTheWorkerToStaging) {
  serve({"--mode=isolated", "--isolated-allow-same-user=true"});
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  // The worker pins staging after the first copy, which is the client's own.
  std::uint64_t objects = 0, own_before = 0;
  EXPECT_TRUE(until([&] {
    put_and_get("key" + std::to_string(objects++), memory, 4 * kMiB, 1);
    std::uint64_t own = 0;
    EXPECT_TRUE(until([&] {
      const Json::Value counted = agent_->ask("status")["sessions"][0]["device_copies"];
      own = counted["own_bytes"].asUInt64();
      return counted["worker_bytes"].asUInt64() + own == objects * 8 * kMiB;
    }));
    return std::exchange(own_before, own) == own || HasFailure();
  }));
}

TEST_F(GpuClient, TheNextWorkerAndTheNextAgentServeTheSameClient) {
  serve();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  put_and_get("key", memory, 4 * kMiB, 1);
  ::kill(worker_pid(), SIGKILL);
  put_and_get("meanwhile", memory, 4 * kMiB, 2);
  await_pins();
  const auto served_again = [&] {
    put_and_get("again", memory, 4 * kMiB, 3);
    return counter("allocations_opened") == 1 || HasFailure();
  };
  EXPECT_TRUE(until(served_again)) << "a client asks for a lane once in a second";
  agent_->crash();
  put_and_get("crash", memory, 4 * kMiB, 4);
  await_pins();
  EXPECT_TRUE(until(served_again));
  ASSERT_EQ(unregister(memory), "MC_OK");
  free(memory);
}

// ---- Death at each step -----------------------------------------------------------------------

class GpuClientSees : public GpuClient, public ::testing::WithParamInterface<const char*> {};

TEST_P(GpuClientSees, AWorkersDeathAsNothing) {
  start_agent("none");
  start_worker(std::string(GetParam()) + "=kill");
  await_pins();
  connect();
  const std::uint64_t memory = peer_->allocate(4 * kMiB);
  ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
  put_and_get("key", memory, 4 * kMiB, 1);
  put_and_get("key2", memory, 4 * kMiB, 2);
  ASSERT_EQ(unregister(memory), "MC_OK");
  free(memory);
}

INSTANTIATE_TEST_SUITE_P(Steps, GpuClientSees,
                         ::testing::Values("gpu.lane_added", "gpu.memory_opened",
                                           "gpu.copy_submitted", "gpu.copy_ended"));

TEST_F(GpuClient, AClientThatDiesUnderACopyLeavesNothing) {
  start_agent("0");
  await_pins();
  for (const char* step : {"client.lane_asked", "client.lane_asked@2"}) {
    ::setenv("MC_FAILPOINTS", (std::string(step) + "=kill").c_str(), 1);
    peer_ = std::make_unique<device::testing::PeerProcess>();
    ::unsetenv("MC_FAILPOINTS");
    connect();
    const std::uint64_t memory = peer_->allocate(4 * kMiB);
    ASSERT_EQ(order("register", memory, 4 * kMiB), "MC_OK");
    EXPECT_EQ(use("put", "key", memory, 4 * kMiB), "") << "the client is dead";
    EXPECT_TRUE(all_sessions_have_ended());
    EXPECT_TRUE(until([&] { return counter("allocations") == 0; }));
    EXPECT_EQ(agent_->ask("status")["session_reserved_bytes"].asUInt64(), 0u);
  }
  EXPECT_EQ(agent_->log().find("gpu_worker_ended"), std::string::npos);
}

}  // namespace
}  // namespace mc::hostile
