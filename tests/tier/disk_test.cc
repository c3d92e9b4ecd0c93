// SPDX-License-Identifier: Apache-2.0
//
// The contract of Disk (agent/tier/disk/disk.h), for every implementation.
#include "agent/tier/disk/disk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "agent/tier/disk/threaded_disk.h"
#include "agent/tier/disk/uring_disk.h"
#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "patience.h"
#include "tier/block_memory.h"
#include "tier/model_disk.h"
#include "tier/temporary_folder.h"

namespace mc::tier::testing {
namespace {

using Kind = BlockOperation::Kind;

constexpr std::uint64_t kContractBytes = 4u << 20;
constexpr DiskShape kContractShape{.bytes = kContractBytes, .sector_bytes = 512};

struct Maker {
  const char* name;
  bool is_file;
  // Takes the descriptor of a file of kContractBytes.
  std::function<Result<std::unique_ptr<Disk>>(Fd)> make;
};

const Maker kMakers[] = {
    {"Uring", true,
     [](Fd fd) -> Result<std::unique_ptr<Disk>> {
       auto disk = UringDisk::create(fd, kContractShape);
       if (!disk) return fail(disk.error());
       return std::unique_ptr<Disk>(std::move(*disk));
     }},
    {"Threaded", true,
     [](Fd fd) -> Result<std::unique_ptr<Disk>> {
       auto disk = ThreadedDisk::create(std::move(fd), kContractShape);
       if (!disk) return fail(disk.error());
       return std::unique_ptr<Disk>(std::move(*disk));
     }},
    {"Model", false,
     [](Fd) -> Result<std::unique_ptr<Disk>> {
       auto disk = std::make_unique<ModelDisk>(kContractBytes, /*seed=*/1);
       disk->set_faults({.delay = 0.5, .reorder = 0.5});
       disk->set_speed({.read_ns = 80'000, .write_ns = 20'000, .flush_ns = 1'000'000});
       return disk;
     }},
};

class DiskContract : public ::testing::TestWithParam<Maker> {
 protected:
  void SetUp() override {
    Fd fd;
    if (GetParam().is_file) {
      fd = Fd(::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      ASSERT_TRUE(fd);
      ASSERT_EQ(::ftruncate(fd.get(), kContractBytes), 0);
      // Where the filesystem refuses O_DIRECT, the contract holds without.
      (void)::fcntl(fd.get(), F_SETFL, O_DIRECT);
    }
    auto disk = GetParam().make(std::move(fd));
    // A kernel may lack io_uring, or refuse it: then the agent takes threads, which have these tests too.
    const bool is_uring = std::string_view(GetParam().name) == "Uring";
    if (is_uring && !disk && disk.error().code() == MC_UNSUPPORTED) {
      GTEST_SKIP() << disk.error().to_string();
    }
    ASSERT_TRUE(disk) << disk.error().to_string();
    disk_ = std::move(*disk);
  }

  std::string path() const { return folder_.file("disk"); }

  void submit(Kind kind, std::uint64_t offset, const BlockMemory* memory,
              std::uint64_t cookie = 0) {
    BlockOperation operation;
    operation.kind = kind;
    operation.offset = offset;
    if (memory != nullptr) {
      operation.memory = memory->data();
      operation.bytes = memory->size();
    }
    operation.cookie = cookie;
    disk_->submit(operation);
  }
  // The next ends, until `count` have come.
  std::vector<BlockEnd> ends(std::size_t count) {
    std::vector<BlockEnd> ended;
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    while (ended.size() < count && now_ns() < deadline_ns) {
      disk_->wait(kSecondNs);
      disk_->take_ended(ended);
    }
    EXPECT_EQ(ended.size(), count);
    return ended;
  }
  // Carries out one operation alone.
  int run(Kind kind, std::uint64_t offset = 0, const BlockMemory* memory = nullptr) {
    submit(kind, offset, memory, 77);
    const std::vector<BlockEnd> ended = ends(1);
    if (ended.size() != 1) return -1;
    EXPECT_EQ(ended[0].cookie, 77u);
    return ended[0].error;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Disk> disk_;
};

INSTANTIATE_TEST_SUITE_P(All, DiskContract, ::testing::ValuesIn(kMakers),
                         [](const auto& maker) { return std::string(maker.param.name); });

TEST_P(DiskContract, HasTheBytesAndTheDepthOfItsMaker) {
  EXPECT_EQ(disk_->shape().bytes, kContractBytes);
  EXPECT_GE(disk_->depth(), 32u);
}

TEST_P(DiskContract, ReadsBackTheBytesOfAWrite) {
  const BlockMemory written(128u << 10, 1);
  const BlockMemory read(written.size());
  EXPECT_EQ(run(Kind::kWrite, 3 * kBlockBytes, &written), 0);
  EXPECT_EQ(run(Kind::kRead, 3 * kBlockBytes, &read), 0);
  EXPECT_TRUE(read == written);
}

TEST_P(DiskContract, ReadsSectors) {
  const BlockMemory block(kBlockBytes);
  for (std::size_t i = 0; i < kBlockBytes; ++i) block.data()[i] = static_cast<std::byte>(i / 512);
  ASSERT_EQ(run(Kind::kWrite, kBlockBytes, &block), 0);
  const std::uint32_t sector = disk_->shape().sector_bytes;
  ASSERT_EQ(sector, 512u);
  const BlockMemory read(2 * sector);
  ASSERT_EQ(run(Kind::kRead, kBlockBytes + 3 * sector, &read), 0);
  EXPECT_EQ(read.data()[0], std::byte{3});
  EXPECT_EQ(read.data()[2 * sector - 1], std::byte{4});
}

TEST_P(DiskContract, ReadsZerosWhereNothingWasWritten) {
  const BlockMemory zeros(kBlockBytes);
  const BlockMemory read(kBlockBytes, 1);
  EXPECT_EQ(run(Kind::kRead, kContractBytes - kBlockBytes, &read), 0);
  EXPECT_TRUE(read == zeros);
}

TEST_P(DiskContract, ReadsBackTheWholeDiskInOneOperation) {
  const BlockMemory written(kContractBytes, 1);
  const BlockMemory read(kContractBytes);
  EXPECT_EQ(run(Kind::kWrite, 0, &written), 0);
  EXPECT_EQ(run(Kind::kRead, 0, &read), 0);
  EXPECT_TRUE(read == written);
}

TEST_P(DiskContract, ReadsTheLaterOfTwoWrites) {
  const BlockMemory first(64u << 10, 1);
  const BlockMemory second(kBlockBytes, 2);
  const BlockMemory read(first.size());
  EXPECT_EQ(run(Kind::kWrite, 0, &first), 0);
  EXPECT_EQ(run(Kind::kWrite, 2 * kBlockBytes, &second), 0);
  EXPECT_EQ(run(Kind::kRead, 0, &read), 0);
  std::memcpy(first.data() + 2 * kBlockBytes, second.data(), second.size());
  EXPECT_TRUE(read == first);
}

TEST_P(DiskContract, FlushesAfterWritesAndKeepsTheBytes) {
  const BlockMemory written(64u << 10, 1);
  const BlockMemory read(written.size());
  EXPECT_EQ(run(Kind::kFlush), 0);
  EXPECT_EQ(run(Kind::kWrite, 0, &written), 0);
  EXPECT_EQ(run(Kind::kFlush), 0);
  EXPECT_EQ(run(Kind::kRead, 0, &read), 0);
  EXPECT_TRUE(read == written);
}

TEST_P(DiskContract, EndsEachOperationOfAFullDepthExactlyOnce) {
  constexpr std::uint64_t kPlaceBytes = 4 * kBlockBytes;
  const std::uint32_t depth = disk_->depth();
  for (std::uint64_t round = 0; round < 4; ++round) {
    std::vector<BlockMemory> memory;
    std::map<std::uint64_t, int> missing;
    for (std::uint32_t i = 0; i < depth; ++i) {
      // Even places are written. Odd places are read, and have the bytes of the last round.
      const bool writes = (i + round) % 2 == 0;
      memory.emplace_back(kPlaceBytes, writes ? round * depth + i : 0);
      Kind kind = writes ? Kind::kWrite : Kind::kRead;
      if (i % 16 == 15) kind = Kind::kFlush;
      submit(kind, i * kPlaceBytes, kind == Kind::kFlush ? nullptr : &memory.back(), 1000 + i);
      ++missing[1000 + i];
    }
    for (const BlockEnd& end : ends(depth)) {
      EXPECT_EQ(end.error, 0);
      --missing[end.cookie];
    }
    for (const auto& [cookie, count] : missing) EXPECT_EQ(count, 0) << cookie;
    for (std::uint32_t i = 0; i < depth && round > 0; ++i) {
      if ((i + round) % 2 == 0 || i % 16 == 15) continue;
      EXPECT_TRUE(memory[i] == BlockMemory(kPlaceBytes, (round - 1) * depth + i));
    }
  }
  std::vector<BlockEnd> more;
  disk_->wait(kMs);
  disk_->take_ended(more);
  EXPECT_TRUE(more.empty());
}

TEST_P(DiskContract, TakesNewOperationsWhileOthersAreUnderWay) {
  const BlockMemory memory(kBlockBytes, 1);
  std::uint64_t submitted = 0;
  std::vector<BlockEnd> ended;
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (ended.size() < 1000 && now_ns() < deadline_ns) {
    while (submitted < 1000 && submitted - ended.size() < disk_->depth()) {
      submit(Kind::kWrite, submitted * kBlockBytes, &memory, submitted);
      ++submitted;
    }
    disk_->wait(kSecondNs);
    disk_->take_ended(ended);
  }
  std::vector<std::uint64_t> cookies;
  for (const BlockEnd& end : ended) cookies.push_back(end.cookie);
  std::ranges::sort(cookies);
  ASSERT_EQ(cookies.size(), 1000u);
  for (std::uint64_t i = 0; i < cookies.size(); ++i) EXPECT_EQ(cookies[i], i);
}

TEST_P(DiskContract, GivesEndsToTakeEndedWithoutAWait) {
  const BlockMemory memory(kBlockBytes, 1);
  submit(Kind::kWrite, 0, &memory);
  if (auto* model = dynamic_cast<ModelDisk*>(disk_.get())) model->set_now(1000 * kMs);
  std::vector<BlockEnd> ended;
  EXPECT_TRUE(until([&] {
    disk_->take_ended(ended);
    return !ended.empty();
  }));
  EXPECT_EQ(ended.size(), 1u);
}

TEST_P(DiskContract, EndsAWaitWithoutEventsAtTheTimeout) {
  disk_->wait(0);
  disk_->wait(1);
  disk_->wait(2 * kMs);
  std::vector<BlockEnd> ended;
  disk_->take_ended(ended);
  EXPECT_TRUE(ended.empty());
}

TEST_P(DiskContract, EndsAWaitAfterAWakeOfAnotherThread) {
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] { disk_->wake(); });
    // Without the wake, CTest's limit would end the test.
    disk_->wait(1000 * kWatchdogNs);
    other.join();
  }
}

TEST_P(DiskContract, EndsTheNextWaitAfterAnEarlierWake) {
  const BlockMemory memory(kBlockBytes, 1);
  submit(Kind::kWrite, 0, &memory);
  ends(1);
  disk_->wake();
  std::vector<BlockEnd> ended;
  disk_->take_ended(ended);
  disk_->wait(1000 * kWatchdogNs);
  EXPECT_TRUE(ended.empty());
}

TEST_P(DiskContract, EndsAWaitWhenAnOperationEnds) {
  const BlockMemory memory(kBlockBytes, 1);
  for (int i = 0; i < 20; ++i) {
    submit(Kind::kWrite, 0, &memory);
    disk_->wait(1000 * kWatchdogNs);
    std::vector<BlockEnd> ended;
    disk_->take_ended(ended);
    EXPECT_EQ(ended.size(), 1u);
  }
}

TEST_P(DiskContract, IsUsedByAThreadOtherThanItsMaker) {
  std::thread user([&] {
    const BlockMemory written(kBlockBytes, 1);
    const BlockMemory read(kBlockBytes);
    EXPECT_EQ(run(Kind::kWrite, 0, &written), 0);
    EXPECT_EQ(run(Kind::kRead, 0, &read), 0);
    EXPECT_TRUE(read == written);
  });
  user.join();
  disk_.reset();
}

class DiskOfAFile : public DiskContract {};

INSTANTIATE_TEST_SUITE_P(All, DiskOfAFile, ::testing::ValuesIn(kMakers, kMakers + 2),
                         [](const auto& maker) { return std::string(maker.param.name); });

TEST_P(DiskOfAFile, WaitsForOperationsUnderWayWhenDestroyed) {
  const BlockMemory written(kBlockBytes, 1);
  std::vector<BlockMemory> read;
  const std::uint32_t depth = disk_->depth();
  for (std::uint32_t i = 0; i < depth; ++i) {
    const bool writes = i % 2 == 0;
    if (!writes) read.emplace_back(kBlockBytes, 2);
    submit(writes ? Kind::kWrite : Kind::kRead, i * kBlockBytes, writes ? &written : &read.back());
  }
  disk_.reset();
  const BlockMemory zeros(kBlockBytes);
  for (const BlockMemory& memory : read) EXPECT_TRUE(memory == zeros);
  const Fd fd(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  const BlockMemory found(kBlockBytes);
  for (std::uint32_t i = 0; i < depth; i += 2) {
    const auto offset = static_cast<off_t>(i * kBlockBytes);
    ASSERT_EQ(::pread(fd.get(), found.data(), kBlockBytes, offset), ssize_t{kBlockBytes});
    EXPECT_TRUE(found == written);
  }
}

TEST_P(DiskOfAFile, EndsAReadBehindTheEndOfAFileThatBecameShorterWithAnError) {
  ASSERT_EQ(::truncate(path().c_str(), kContractBytes / 2), 0);
  const BlockMemory whole(kContractBytes);
  const BlockMemory block(kBlockBytes);
  EXPECT_EQ(run(Kind::kRead, 0, &whole), EIO);
  EXPECT_EQ(run(Kind::kRead, kContractBytes - kBlockBytes, &block), EIO);
  EXPECT_EQ(run(Kind::kRead, 0, &block), 0);
}

}  // namespace
}  // namespace mc::tier::testing
