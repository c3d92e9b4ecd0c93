// SPDX-License-Identifier: Apache-2.0
//
// The worker of a device, between an agent (the test) and a client's lane.
#include "agent/gpu/worker.h"

#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "device/client_lane.h"
#include "device/device_fixture.h"
#include "device/peer_process.h"
#include "patience.h"

namespace mc::gpu {
namespace {

using device::testing::ClientLane;
using device::testing::kMiB;
using shm::LaneMemory;
using shm::LaneOp;

constexpr std::uint64_t kPool = 9;
constexpr std::uint64_t kClient = 5;
constexpr std::uint64_t kPartBytes = 4 * kMiB;

class WorkerTest : public device::testing::DeviceTest {
 protected:
  void SetUp() override {
    const std::uint64_t parts[] = {kPartBytes, kPartBytes};
    pool_ = MemoryFile::create_growing("pool", parts).value();
    ASSERT_TRUE(pool_.reserve(0, kPartBytes).ok());
    bytes_ = Mapping::map_all(pool_, Mapping::Access::kReadWrite).value();
    start();
    share_pool(true);
    add_lane(lane_, kClient);
  }
  ~WorkerTest() override { stop(); }

  void start() {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    link_.reset(ends[0]);
    auto worker = Worker::create(*device::Driver::find(), 0, Fd(ends[1]));
    ASSERT_TRUE(worker) << worker.error().text();
    worker_ = std::move(*worker);
    EXPECT_EQ(next().type, LinkType::kHello);
    thread_ = std::thread([this] { result_ = worker_->run(); });
  }
  void stop() {
    link_.reset();
    if (thread_.joinable()) thread_.join();
    worker_.reset();
  }
  void send(const LinkMessage& message, const std::vector<int>& fds = {}) {
    ASSERT_TRUE(send_message(link_.get(), std::as_bytes(std::span(&message, 1)), fds).ok());
  }
  LinkMessage next() {
    LinkMessage received;
    EXPECT_TRUE(until([&] {
      const auto message = receive_message(link_.get(), sizeof(LinkMessage));
      if (!message) return false;
      received = decode_link(message->bytes).value();
      return true;
    }));
    return received;
  }
  void share_pool(bool writable) {
    LinkMessage pool;
    pool.type = LinkType::kPool;
    pool.pool = kPool;
    pool.bytes = kPartBytes;
    pool.part_count = 2;
    pool.writable = writable ? 1 : 0;
    send(pool, {pool_.part_fd(0), pool_.part_fd(1)});
    back(kPartBytes);
  }
  void back(std::uint64_t bytes, std::uint64_t ticket = 0) {
    LinkMessage backed;
    backed.ticket = ticket;
    backed.type = LinkType::kBacked;
    backed.pool = kPool;
    backed.bytes = bytes;
    send(backed);
  }
  void add_lane(const ClientLane& lane, std::uint64_t client) {
    LinkMessage message;
    message.type = LinkType::kLane;
    message.pool = kPool;
    message.client = client;
    send(message, lane.fds());
  }
  void end_client(std::uint64_t client) {
    LinkMessage message;
    message.type = LinkType::kEndClient;
    message.client = client;
    message.ticket = 40 + client;
    send(message);
  }
  WorkerCounters report() {
    LinkMessage message;
    message.type = LinkType::kReport;
    message.ticket = 7;
    send(message);
    const LinkMessage answer = next();
    EXPECT_EQ(answer.type, LinkType::kReport);
    EXPECT_EQ(answer.ticket, 7u);
    return answer.counters;
  }
  static shm::LaneCopy item(std::uint64_t host_offset, std::uint64_t bytes, bool to_device) {
    return {1,
            0,
            host_offset,
            bytes,
            static_cast<std::uint32_t>(LaneMemory::kPool),
            to_device ? 1U : 0U};
  }
  // Copies when the worker has pinned the memory.
  int copy(const std::vector<shm::LaneCopy>& copies) {
    int status = MC_BUSY;
    EXPECT_TRUE(until([&] { return (status = lane_.copy(copies)) != MC_BUSY; }));
    return status;
  }

  MemoryFile pool_;
  Mapping bytes_;
  Fd link_;
  std::unique_ptr<Worker> worker_;
  std::thread thread_;
  Status result_;
  ClientLane lane_;
  device::testing::PeerProcess peer_;
};

TEST_F(WorkerTest, BytesGoFromAClientsDeviceMemoryToThePoolAndBack) {
  const std::uint64_t theirs = peer_.allocate(2 * kMiB);
  peer_.fill(theirs, 2 * kMiB, 7);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 2 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(kMiB, 2 * kMiB, false)}), MC_OK);
  EXPECT_EQ(bytes_.data()[kMiB - 1], std::byte{0});
  EXPECT_EQ(bytes_.data()[kMiB], std::byte{7});
  EXPECT_EQ(bytes_.data()[3 * kMiB - 1], std::byte{7});
  EXPECT_EQ(bytes_.data()[3 * kMiB], std::byte{0});
  std::memset(bytes_.data(), 9, 4096);
  ASSERT_EQ(copy({item(0, 4096, true)}), MC_OK);
  EXPECT_EQ(peer_.tell_of("byte", theirs + 4095), "9");
  EXPECT_EQ(peer_.tell_of("byte", theirs + 4096), "7");
  ASSERT_TRUE(until([&] { return report().pinned_bytes == kPartBytes; }));
  const WorkerCounters counters = report();
  EXPECT_EQ(counters.requests, 2u);
  EXPECT_EQ(counters.bytes_from_device, 2 * kMiB);
  EXPECT_EQ(counters.bytes_to_device, 4096u);
  EXPECT_EQ(counters.imports, 1u);
  EXPECT_EQ(counters.opened, 1u);
}

TEST_F(WorkerTest, CopiesWaitForTheStampOfAStreamAndTheStreamForTheirs) {
  const std::uint64_t theirs = peer_.allocate(2 * kMiB);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 2 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(0, 4096, false)}), MC_OK);
  shm::LaneRequest request = lane_.copies({item(0, 4096, false)});
  request.slot = 200;
  request.stamp = 0x80000001;
  lane_.lane().ready[200].store_release(0x80000000);
  request.request_id = 500;
  lane_.publish(request);
  // The next request needs no stamp, and the stamp of a third has come.
  EXPECT_EQ(lane_.copy({item(0, 4096, false)}), MC_OK);
  request.slot = 7;
  request.stamp = 3;
  lane_.lane().ready[7].store_release(4);
  EXPECT_EQ(lane_.ask(request), MC_OK);
  EXPECT_EQ(lane_.lane().done[7].load_acquire(), 3u);
  ::poll(nullptr, 0, 5);
  EXPECT_FALSE(lane_.poll().has_value());
  EXPECT_EQ(lane_.lane().done[200].load_acquire(), 0u);
  peer_.fill(theirs, 2 * kMiB, 5);
  lane_.lane().ready[200].store_release(0x80000001);  // rings no bell
  std::optional<shm::LaneCompletion> answer;
  ASSERT_TRUE(until([&] { return (answer = lane_.poll()).has_value(); }));
  EXPECT_EQ(answer->request_id, 500u);
  EXPECT_EQ(answer->status, MC_OK);
  EXPECT_EQ(lane_.lane().done[200].load_acquire(), 0x80000001u);
  EXPECT_EQ(bytes_.data()[4095], std::byte{5});
  // After a failure the client lets the stream go on.
  request = lane_.copies({item(~std::uint64_t{0}, 4096, false)});
  request.slot = 8;
  request.stamp = 1;
  lane_.lane().ready[8].store_release(1);
  EXPECT_EQ(lane_.ask(request), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.lane().done[8].load_acquire(), 0u);
  request.slot = shm::kRingSlots;
  EXPECT_EQ(lane_.ask(request), MC_INVALID_ARGUMENT);
}

TEST_F(WorkerTest, ADriverThatPinsNoMoreLeavesTheRestToItsClients) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake has a limit of pins";
  stop();
  device::testing::fake().pin_limit(kMiB);
  start();
  share_pool(true);
  ClientLane lane;
  add_lane(lane, kClient);
  const std::uint64_t theirs = peer_.allocate(2 * kMiB);
  ASSERT_EQ(lane.open(1, peer_.share(theirs), 2 * kMiB), MC_OK);
  EXPECT_EQ(report().pinned_bytes, 0u) << "a piece of 4 MiB is over the limit";
  EXPECT_EQ(lane.copy({item(0, 4096, false)}), MC_BUSY);
  device::testing::fake().pin_limit(~std::uint64_t{0});
  // The agent's questions wake the worker, which then tries again.
  ASSERT_TRUE(until([&] { return report().pinned_bytes == kPartBytes; }));
  EXPECT_EQ(lane.copy({item(0, 4096, false)}), MC_OK);
}

TEST_F(WorkerTest, MemoryIsUnpinnedAfterTheCopiesOfAClientThatUsesItWhileItIsFree) {
  const std::uint64_t theirs = peer_.allocate(4 * kMiB);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 4 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(0, 4096, false)}), MC_OK);
  const shm::LaneCopy last = item(0, 4 * kMiB, false);
  shm::LaneRequest request = lane_.copies({last});
  for (request.request_id = 100; request.request_id < 110; ++request.request_id) {
    lane_.publish(request);
  }
  back(0, 5);
  const LinkMessage answer = next();
  EXPECT_EQ(answer.type, LinkType::kUnpinned);
  EXPECT_EQ(answer.ticket, 5u);
}

TEST_F(WorkerTest, WhatAClientMayNotDoIsRefused) {
  const std::uint64_t theirs = peer_.allocate(8 * kMiB);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 8 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(0, 4096, false)}), MC_OK);
  EXPECT_EQ(lane_.copy({item(0, 8 * kMiB + 1, false)}), MC_INVALID_ARGUMENT) << "beyond both";
  EXPECT_EQ(lane_.copy({item(0, shm::kMaxLaneBytes + 1, false)}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.copy({item(~std::uint64_t{0}, 4096, false)}), MC_INVALID_ARGUMENT);
  shm::LaneCopy other = item(0, 4096, false);
  other.allocation = 2;
  EXPECT_EQ(lane_.copy({other}), MC_NOT_FOUND);
  other = item(0, 4096, false);
  other.memory = static_cast<std::uint32_t>(LaneMemory::kStaging);
  EXPECT_EQ(lane_.copy({other}), MC_PERMISSION_DENIED) << "no staging memory";
  other.memory = 77;
  EXPECT_EQ(lane_.copy({other}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.copy({item(kPartBytes, 4096, false)}), MC_BUSY) << "no memory is backed there";
  // A bad item in the middle: nothing of the request counts as used any more.
  EXPECT_EQ(lane_.copy({item(0, 4096, false), other}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.ask(ClientLane::request(LaneOp{99}, 0, 0)), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.ask(ClientLane::request(LaneOp::kCloseMemory, 0, 0, 1)), MC_OK);
  EXPECT_EQ(lane_.copy({item(0, 4096, false)}), MC_NOT_FOUND);
  EXPECT_EQ(peer_.tell_of("free", theirs), "ok") << "closed";
}

TEST_F(WorkerTest, ChunksComeWithTheirDescriptorsOrAreRefused) {
  const std::uint64_t theirs = peer_.number("chunks 2");
  peer_.fill(theirs, 4 * kMiB, 4);
  const Fd chunks[] = {peer_.chunk(0), peer_.chunk(1)};
  const std::vector<std::uint64_t> one(1, 2 * kMiB), two(2, 2 * kMiB);
  const shm::LaneRequest nothing_sent =
      ClientLane::request(LaneOp::kAddChunks, 1, sizeof(std::uint64_t), 3, 4 * kMiB);
  EXPECT_EQ(lane_.ask(nothing_sent), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.add_chunks(3, 4 * kMiB, {chunks[0].get(), chunks[1].get()}, one),
            MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.add_chunks(3, 4 * kMiB, {chunks[0].get()}, two), MC_INVALID_ARGUMENT);
  EXPECT_EQ(lane_.ask(ClientLane::request(LaneOp::kAddChunks, shm::kMaxLaneChunks + 1,
                                          (shm::kMaxLaneChunks + 1) * 8, 3, 4 * kMiB)),
            MC_INVALID_ARGUMENT);
  ASSERT_EQ(lane_.add_chunks(3, 4 * kMiB, {chunks[0].get()}, one), MC_OK);
  ASSERT_EQ(lane_.add_chunks(3, 4 * kMiB, {chunks[1].get()}, one), MC_OK);
  shm::LaneCopy across = item(0, 2 * kMiB, false);
  across.allocation = 3;
  across.device_offset = kMiB;
  ASSERT_EQ(copy({across}), MC_OK);
  EXPECT_EQ(bytes_.data()[2 * kMiB - 1], std::byte{4});
}

TEST_F(WorkerTest, AClientOfAnIsolatedPoolReadsOnly) {
  stop();
  start();
  share_pool(false);
  ClientLane lane;
  add_lane(lane, kClient);
  const std::uint64_t theirs = peer_.allocate(kMiB * 2);
  ASSERT_EQ(lane.open(1, peer_.share(theirs), 2 * kMiB), MC_OK);
  EXPECT_EQ(lane.copy({item(0, 4096, false)}), MC_PERMISSION_DENIED);
  std::memset(bytes_.data(), 3, 4096);
  int status = MC_BUSY;
  EXPECT_TRUE(until([&] { return (status = lane.copy({item(0, 4096, true)})) != MC_BUSY; }));
  EXPECT_EQ(status, MC_OK);
  EXPECT_EQ(peer_.tell_of("byte", theirs), "3");
}

TEST_F(WorkerTest, AClientEndsWhenItsLastCopyHasEndedAndItsMemoryIsClosed) {
  const std::uint64_t theirs = peer_.allocate(4 * kMiB);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 4 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(0, 4 * kMiB, false)}), MC_OK);
  peer_.kill();
  expect_charged(4 * kMiB);
  end_client(kClient);
  const LinkMessage answer = next();
  EXPECT_EQ(answer.type, LinkType::kClientEnded);
  EXPECT_EQ(answer.client, kClient);
  EXPECT_EQ(answer.ticket, 40 + kClient);
  expect_charged(0);
  end_client(77);  // the agent does not know which clients the worker has
  EXPECT_EQ(next().client, 77u);
}

TEST_F(WorkerTest, MemoryIsUnpinnedBeforeThePoolGivesItBack) {
  const std::uint64_t theirs = peer_.allocate(4 * kMiB);
  ASSERT_EQ(lane_.open(1, peer_.share(theirs), 4 * kMiB), MC_OK);
  ASSERT_EQ(copy({item(0, 4 * kMiB, false)}), MC_OK);
  back(kMiB, 3);
  const LinkMessage answer = next();
  EXPECT_EQ(answer.type, LinkType::kUnpinned);
  EXPECT_EQ(answer.bytes, kMiB);
  EXPECT_EQ(lane_.copy({item(3 * kMiB, 4096, false)}), MC_BUSY);
  EXPECT_EQ(copy({item(0, 4096, false)}), MC_OK);
}

TEST_F(WorkerTest, TheWorkerEndsWithTheAgent) {
  stop();
  EXPECT_TRUE(result_.ok());
}

TEST_F(WorkerTest, TheWorkerEndsWithItsDevice) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake fails on demand";
  ASSERT_EQ(lane_.open(1, peer_.share(peer_.allocate(4096)), 4096), MC_OK);
  const shm::LaneCopy first = item(0, 4096, false);
  ASSERT_EQ(copy({first}), MC_OK);
  device::testing::fake().fail("cuMemcpyDtoHAsync", 0, 719);
  lane_.publish(lane_.copies({first}));
  thread_.join();
  EXPECT_EQ(result_.code(), MC_DEVICE_FAILED);
  device::testing::fake().fail(nullptr, 0, 0);
}

}  // namespace
}  // namespace mc::gpu
