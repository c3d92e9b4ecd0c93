// SPDX-License-Identifier: Apache-2.0
//
// The faults of the model disk, which tests of the tier rely on.
#include "tier/model_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tier/block_memory.h"

namespace mc::tier::testing {
namespace {

using Kind = BlockOperation::Kind;

constexpr std::uint64_t kModelBytes = 1u << 30;
constexpr std::uint64_t kNever = ModelDisk::kNever;

void submit(ModelDisk& disk, Kind kind, std::uint64_t offset = 0,
            const BlockMemory* memory = nullptr, std::uint64_t cookie = 0) {
  BlockOperation operation{kind, offset, nullptr, 0, cookie};
  if (memory != nullptr) {
    operation.memory = memory->data();
    operation.bytes = memory->size();
  }
  disk.submit(operation);
}

std::vector<BlockEnd> ends(ModelDisk& disk) {
  std::vector<BlockEnd> ended;
  disk.take_ended(ended);
  return ended;
}

// Carries out one operation alone, in the disk's time.
int run(ModelDisk& disk, Kind kind, std::uint64_t offset = 0, const BlockMemory* memory = nullptr) {
  submit(disk, kind, offset, memory);
  disk.wait(kNever);
  const std::vector<BlockEnd> ended = ends(disk);
  EXPECT_EQ(ended.size(), 1u);
  return ended.size() == 1 ? ended[0].error : -1;
}

int write(ModelDisk& disk, std::uint64_t offset, const BlockMemory& memory) {
  return run(disk, Kind::kWrite, offset, &memory);
}
int flush(ModelDisk& disk) { return run(disk, Kind::kFlush); }
BlockMemory read(ModelDisk& disk, std::uint64_t offset, std::uint64_t bytes) {
  BlockMemory memory(bytes);
  EXPECT_EQ(run(disk, Kind::kRead, offset, &memory), 0);
  return memory;
}

// For each sector: 0 for the first image, 1 for the second, -1 for anything else.
std::vector<int> sectors(const BlockMemory& found, const BlockMemory& a, const BlockMemory& b) {
  std::vector<int> result;
  for (std::uint64_t at = 0; at < found.size(); at += kSectorBytes) {
    int which = -1;
    if (std::memcmp(found.data() + at, a.data() + at, kSectorBytes) == 0) which = 0;
    if (std::memcmp(found.data() + at, b.data() + at, kSectorBytes) == 0) which = 1;
    result.push_back(which);
  }
  return result;
}

TEST(ModelDisk, KeepsFlushedBytesOverAPowerCut) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory first(256u << 10, 1);
  EXPECT_EQ(write(disk, 0, first), 0);
  EXPECT_EQ(flush(disk), 0);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  EXPECT_TRUE(read(next, 0, first.size()) == first);
  EXPECT_TRUE(disk.vanished());
  EXPECT_EQ(write(disk, 0, first), ENODEV);
}

TEST(ModelDisk, KeepsOrLosesEachSectorOfAnUnflushedWrite) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory old(256u << 10, 1);
  const BlockMemory changed(old.size(), 2);
  EXPECT_EQ(write(disk, 0, old), 0);
  EXPECT_EQ(flush(disk), 0);
  EXPECT_EQ(write(disk, 0, changed), 0);
  EXPECT_TRUE(read(disk, 0, old.size()) == changed);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  const std::vector<int> found = sectors(read(next, 0, old.size()), old, changed);
  EXPECT_THAT(found, ::testing::Contains(0).Times(::testing::Gt(100)));
  EXPECT_THAT(found, ::testing::Contains(1).Times(::testing::Gt(100)));
  EXPECT_THAT(found, ::testing::Not(::testing::Contains(-1)));
}

TEST(ModelDisk, TearsAWriteThatIsUnderWayAtAPowerCut) {
  ModelDisk disk(kModelBytes, 1);
  disk.set_speed({.write_ns = 1000});
  const BlockMemory zeros(64u << 10);
  const BlockMemory changed(zeros.size(), 2);
  submit(disk, Kind::kWrite, 0, &changed);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  const std::vector<int> found = sectors(read(next, 0, zeros.size()), zeros, changed);
  EXPECT_THAT(found, ::testing::Contains(0));
  EXPECT_THAT(found, ::testing::Contains(1));
  EXPECT_EQ(ends(disk).at(0).error, ENODEV);
}

TEST(ModelDisk, WritesUnflushedBytesBackInAnyOrder) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory first(256u << 10, 1);
  const BlockMemory second(first.size(), 2);
  // Of many writes, an older one covers a later one somewhere.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(write(disk, 0, first), 0);
    EXPECT_EQ(write(disk, 0, second), 0);
  }
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  const std::vector<int> found = sectors(read(next, 0, first.size()), first, second);
  EXPECT_THAT(found, ::testing::Contains(0));
  EXPECT_THAT(found, ::testing::Contains(1));
}

TEST(ModelDisk, MakesOnlyThoseWritesDurableThatEndedBeforeTheFlushBegan) {
  ModelDisk disk(kModelBytes, 1);
  disk.set_speed({.write_ns = 10, .flush_ns = 100});
  const BlockMemory early(64u << 10, 1);
  const BlockMemory late(64u << 10, 2);
  EXPECT_EQ(write(disk, 0, early), 0);
  submit(disk, Kind::kFlush);
  submit(disk, Kind::kWrite, 1u << 20, &late);
  disk.set_now(1'000'000);
  EXPECT_EQ(ends(disk).size(), 2u);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  EXPECT_TRUE(read(next, 0, early.size()) == early);
  EXPECT_FALSE(read(next, 1u << 20, late.size()) == late);
}

TEST(ModelDisk, DropsUnflushedWritesAtAFailedFlushButReadsThem) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory zeros(64u << 10);
  const BlockMemory dropped(zeros.size(), 1);
  const BlockMemory later(zeros.size(), 2);
  EXPECT_EQ(write(disk, 0, dropped), 0);
  disk.fail_next(Kind::kFlush, 1, EIO);
  EXPECT_EQ(flush(disk), EIO);
  EXPECT_EQ(write(disk, 1u << 20, later), 0);
  EXPECT_EQ(flush(disk), 0);
  EXPECT_TRUE(read(disk, 0, dropped.size()) == dropped);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  EXPECT_TRUE(read(next, 0, zeros.size()) == zeros);
  EXPECT_TRUE(read(next, 1u << 20, later.size()) == later);
}

TEST(ModelDisk, EndsAllOperationsWithNoDeviceAfterItVanished) {
  ModelDisk disk(kModelBytes, 1);
  disk.set_speed({.write_ns = 1000});
  const BlockMemory memory(kBlockBytes, 1);
  submit(disk, Kind::kWrite, 0, &memory, 1);
  disk.vanish();
  submit(disk, Kind::kRead, 0, &memory, 2);
  submit(disk, Kind::kFlush, 0, nullptr, 3);
  const std::vector<BlockEnd> ended = ends(disk);
  ASSERT_EQ(ended.size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ended[i].cookie, i + 1);
    EXPECT_EQ(ended[i].error, ENODEV);
  }
  disk.heal();
  EXPECT_EQ(flush(disk), ENODEV);
}

TEST(ModelDisk, FailsTheNextOperationsOfAKindAndNoOthers) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory memory(kBlockBytes, 1);
  disk.fail_next(Kind::kWrite, 2, ENOSPC);
  EXPECT_EQ(write(disk, 0, memory), ENOSPC);
  EXPECT_EQ(flush(disk), 0);
  EXPECT_EQ(write(disk, 0, memory), ENOSPC);
  EXPECT_EQ(write(disk, 0, memory), 0);
  EXPECT_EQ(disk.counts().failed, 2u);
}

TEST(ModelDisk, WritesAnyOfTheSectorsOfAFailedWrite) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory zeros(64u << 10);
  const BlockMemory changed(zeros.size(), 1);
  disk.fail_next(Kind::kWrite, 1, EIO);
  EXPECT_EQ(write(disk, 0, changed), EIO);
  const std::vector<int> found = sectors(read(disk, 0, zeros.size()), zeros, changed);
  EXPECT_THAT(found, ::testing::Contains(0));
  EXPECT_THAT(found, ::testing::Contains(1));
}

TEST(ModelDisk, FailsReadsOfARangeUntilItHeals) {
  ModelDisk disk(kModelBytes, 1);
  BlockMemory memory(2 * kBlockBytes);
  disk.fail_range(Kind::kRead, 5 * kBlockBytes, kBlockBytes, EIO);
  EXPECT_EQ(run(disk, Kind::kRead, 4 * kBlockBytes, &memory), EIO);
  EXPECT_NE(memory.data()[0], std::byte{0});
  EXPECT_EQ(run(disk, Kind::kRead, 3 * kBlockBytes, &memory), 0);
  EXPECT_EQ(run(disk, Kind::kRead, 6 * kBlockBytes, &memory), 0);
  EXPECT_EQ(write(disk, 4 * kBlockBytes, memory), 0);
  disk.heal();
  EXPECT_EQ(run(disk, Kind::kRead, 4 * kBlockBytes, &memory), 0);
}

TEST(ModelDisk, FlipsAStoredBitUntilTheNextWrite) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory written(kBlockBytes, 1);
  const BlockMemory flipped(kBlockBytes, 1);
  flipped.data()[100] ^= std::byte{8};
  EXPECT_EQ(write(disk, kBlockBytes, written), 0);
  disk.flip_bit(kBlockBytes + 100, 3);
  EXPECT_TRUE(read(disk, kBlockBytes, kBlockBytes) == flipped);
  EXPECT_EQ(flush(disk), 0);
  ModelDisk next(kModelBytes, 2, disk.power_cut());
  EXPECT_TRUE(read(next, kBlockBytes, kBlockBytes) == flipped);
  EXPECT_EQ(write(next, kBlockBytes, written), 0);
  EXPECT_TRUE(read(next, kBlockBytes, kBlockBytes) == written);
}

TEST(ModelDisk, FlipsABitInTheNextReadAlone) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory written(kBlockBytes, 1);
  const BlockMemory flipped(kBlockBytes, 1);
  flipped.data()[4095] ^= std::byte{1};
  EXPECT_EQ(write(disk, kBlockBytes, written), 0);
  disk.flip_bit_in_next_read(2 * kBlockBytes - 1, 0);
  read(disk, 0, kBlockBytes);
  EXPECT_TRUE(read(disk, kBlockBytes, kBlockBytes) == flipped);
  EXPECT_TRUE(read(disk, kBlockBytes, kBlockBytes) == written);
}

TEST(ModelDisk, MisdirectsTheNextWrite) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory zeros(kBlockBytes);
  const BlockMemory written(kBlockBytes, 1);
  disk.misdirect_next_write(8 * kBlockBytes);
  EXPECT_EQ(write(disk, 0, written), 0);
  EXPECT_TRUE(read(disk, 0, kBlockBytes) == zeros);
  EXPECT_TRUE(read(disk, 8 * kBlockBytes, kBlockBytes) == written);
  EXPECT_EQ(write(disk, 0, written), 0);
  EXPECT_TRUE(read(disk, 0, kBlockBytes) == written);
  EXPECT_EQ(disk.counts().misdirected, 1u);
}

TEST(ModelDisk, LosesTheNextWrite) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory zeros(kBlockBytes);
  const BlockMemory written(kBlockBytes, 1);
  disk.lose_next_write();
  EXPECT_EQ(write(disk, 0, written), 0);
  EXPECT_TRUE(read(disk, 0, kBlockBytes) == zeros);
  EXPECT_EQ(write(disk, 0, written), 0);
  EXPECT_TRUE(read(disk, 0, kBlockBytes) == written);
}

TEST(ModelDisk, EndsOperationsInItsOwnTime) {
  ModelDisk disk(kModelBytes, 1);
  disk.set_speed({.read_ns = 300, .write_ns = 100, .block_ns = 10});
  const BlockMemory memory(2 * kBlockBytes, 1);
  EXPECT_EQ(disk.next_end_ns(), kNever);
  disk.set_now(1000);
  submit(disk, Kind::kRead, 0, &memory, 1);
  disk.set_slowness(10);
  submit(disk, Kind::kWrite, 0, &memory, 2);
  EXPECT_EQ(disk.next_end_ns(), 1320u);
  disk.set_now(1319);
  EXPECT_TRUE(ends(disk).empty());
  disk.set_now(1320);
  EXPECT_EQ(disk.next_end_ns(), 0u);
  EXPECT_EQ(ends(disk).at(0).cookie, 1u);
  EXPECT_EQ(disk.next_end_ns(), 2200u);
  disk.wait(500);
  EXPECT_EQ(disk.now_ns(), 1820u);
  disk.wait(500);
  EXPECT_EQ(disk.now_ns(), 2200u);
  EXPECT_EQ(ends(disk).at(0).cookie, 2u);
  EXPECT_EQ(disk.under_way(), 0u);
}

// The ends and the image after a run with all faults.
std::vector<std::uint64_t> story(std::uint64_t seed) {
  constexpr std::uint64_t kBytes = 512u << 10;
  ModelDisk disk(kBytes, seed);
  disk.set_faults({.fail_read = 0.2,
                   .fail_write = 0.2,
                   .fail_flush = 0.2,
                   .flip_bit = 0.3,
                   .misdirect = 0.3,
                   .lose = 0.3,
                   .delay = 0.3,
                   .reorder = 0.3});
  std::vector<BlockMemory> memory;
  for (std::uint64_t i = 0; i < 60; ++i) {
    memory.emplace_back(4 * kBlockBytes, i);
    submit(disk, static_cast<Kind>(i % 2), i % 16 * 4 * kBlockBytes, &memory.back(), i);
  }
  submit(disk, Kind::kFlush, 0, nullptr, 60);
  std::vector<std::uint64_t> told;
  while (disk.under_way() > 0) {
    disk.wait(kNever);
    for (const BlockEnd& end : ends(disk)) {
      told.push_back(end.cookie * 1000 + static_cast<std::uint64_t>(end.error));
    }
  }
  const BlockMemory left(kBytes);
  disk.power_cut().read(0, left.span());
  const std::size_t ends_told = told.size();
  told.resize(ends_told + kBytes / sizeof told[0]);
  std::memcpy(&told[ends_told], left.data(), kBytes);
  const DiskCounts& counts = disk.counts();
  for (const std::uint64_t count : {counts.failed, counts.flipped, counts.misdirected, counts.lost,
                                    counts.delayed, counts.reordered}) {
    EXPECT_GT(count, 0u);
    told.push_back(count);
  }
  return told;
}

TEST(ModelDisk, DoesTheSameForTheSameSeed) {
  EXPECT_TRUE(story(7) == story(7));
  EXPECT_FALSE(story(7) == story(8));
}

TEST(ModelDisk, CountsOperationsAndBytes) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory memory(2 * kBlockBytes, 1);
  EXPECT_EQ(write(disk, 0, memory), 0);
  EXPECT_EQ(write(disk, 0, memory), 0);
  EXPECT_EQ(flush(disk), 0);
  read(disk, 0, kBlockBytes);
  EXPECT_EQ(disk.counts().writes, 2u);
  EXPECT_EQ(disk.counts().written_bytes, 4 * kBlockBytes);
  EXPECT_EQ(disk.counts().flushes, 1u);
  EXPECT_EQ(disk.counts().reads, 1u);
  EXPECT_EQ(disk.counts().read_bytes, kBlockBytes);
}

TEST(ModelDisk, HoldsOnlyTheChunksThatWereWritten) {
  ModelDisk disk(kModelBytes, 1);
  const BlockMemory memory(kBlockBytes, 1);
  EXPECT_EQ(write(disk, 0, memory), 0);
  EXPECT_EQ(write(disk, kModelBytes - kBlockBytes, memory), 0);
  EXPECT_EQ(disk.image().held_bytes(), 2 * SparseBytes::kChunkBytes);
}

TEST(ModelDiskDeathTest, EndsTheProcessAtASubmissionThatBreaksTheContract) {
  const BlockMemory memory(kBlockBytes, 1);
  EXPECT_DEATH(
      {
        ModelDisk disk(kModelBytes, 1);
        submit(disk, Kind::kWrite, kModelBytes, &memory);
      },
      "behind the disk");
  EXPECT_DEATH(
      {
        ModelDisk disk(kModelBytes, 1);
        submit(disk, Kind::kWrite, 512, &memory);
      },
      "no multiple of a block");
  EXPECT_DEATH(
      {
        ModelDisk disk(kModelBytes, 1);
        submit(disk, Kind::kRead, 100, &memory);
      },
      "no multiple of a sector");
  EXPECT_DEATH(
      {
        ModelDisk disk(kModelBytes, 1, {}, /*depth=*/1);
        submit(disk, Kind::kRead, 0, &memory);
        submit(disk, Kind::kRead, 0, &memory);
      },
      "too many operations");
}

}  // namespace
}  // namespace mc::tier::testing
