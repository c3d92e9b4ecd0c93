// SPDX-License-Identifier: Apache-2.0
//
// Faults of one block, one operation or one disk: which objects they cost, and that no removed object
// comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "tier/log_rig.h"

namespace mc::tier::testing {
namespace {

using Kind = ModelDisk::Kind;

constexpr std::uint64_t kSegment = kSmallestSegmentBytes;

// The offset of the key's record on the disk.
std::uint64_t offset_of(LogRig& rig, const std::string& key) {
  const Place place = rig.log().find({key, LogRig::kNamespace})->place;
  return kFirstSegmentOffset + number_of(place.segment) * kSegment + place.unit * kUnitBytes;
}

// The block of a sealed segment's footer starts right before its trailer here.
struct Block {
  const char* name;
  std::uint64_t offset;
};
constexpr Block kBlocks[] = {{"header", kFirstSegmentOffset},
                             {"second header", kFirstSegmentOffset + kBlockBytes},
                             {"footer", kFirstSegmentOffset + kSegment - 2 * kBlockBytes},
                             {"trailer", kFirstSegmentOffset + kSegment - kBlockBytes}};

TEST(TierFaults, ABlockOfASegmentsFrameThatCannotBeReadCostsNothing) {
  for (const Block& block : kBlocks) {
    LogRig rig({});
    rig.settle();
    const int count = fill(rig, 200);
    rig.kill();
    rig.disk().fail_range(Kind::kRead, block.offset, kBlockBytes, EIO);
    rig.settle();
    EXPECT_EQ(present(rig, count), count) << block.name;
  }
}

TEST(TierFaults, ADamagedBlockOfASegmentsFrameCostsNothing) {
  for (const Block& block : kBlocks) {
    for (const std::uint64_t byte : {20u, 700u}) {
      LogRig rig({});
      rig.settle();
      const int count = fill(rig, 200);
      rig.disk().flip_bit(block.offset + byte, 2);
      rig.kill();
      rig.settle();
      EXPECT_EQ(present(rig, count), count) << block.name;
    }
  }
}

TEST(TierFaults, ADamagedRecordOfAnOpenSegmentCostsOneObject) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 10);
  rig.disk().flip_bit(offset_of(rig, key_of(3)) + 8, 1);
  rig.kill();
  rig.settle();
  EXPECT_EQ(present(rig, count), count - 1);
  EXPECT_FALSE(rig.get(key_of(3)));
  // New records do not harm those that were found.
  EXPECT_TRUE(rig.put("more", 1, 9'000));
  rig.power_cut();
  rig.settle();
  EXPECT_EQ(present(rig, count), count - 1);
}

// The object is in a sealed segment, and its removal in the open one.
TEST(TierFaults, AFlippedBitInARemovalBringsNoObjectBack) {
  for (const bool second : {false, true}) {
    LogRig rig({});
    rig.settle();
    const int count = fill(rig, 60);
    const std::uint64_t last = offset_of(rig, key_of(count - 1));
    ASSERT_GT(number_of(rig.log().find({key_of(count - 1), LogRig::kNamespace})->place.segment),
              0u);
    ASSERT_TRUE(rig.remove(key_of(0)));
    const std::uint64_t first_copy = round_up(last + 9'000 + kUnitBytes * 3, kBlockBytes);
    rig.disk().flip_bit(first_copy + (second ? kBlockBytes : 0) + 10, 3);
    rig.kill();
    rig.settle();
    EXPECT_EQ(present(rig, count), count - 1);
    EXPECT_FALSE(rig.get(key_of(0)));
  }
}

TEST(TierFaults, ADiskEmptiesItselfIfASegmentCannotBeReadAtAllAndServesOn) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 200);
  rig.kill();
  rig.disk().fail_range(Kind::kRead, kFirstSegmentOffset, 2 * kBlockBytes, EIO);
  rig.settle();
  EXPECT_EQ(present(rig, count), 0);
  EXPECT_NE(rig.log().report()[0].emptied, "");
  EXPECT_TRUE(rig.put("new", 1, 9'000));
  EXPECT_TRUE(rig.has("new", 1));
}

TEST(TierFaults, DamageThatTheCleanerFindsCostsTheDamagedObjectsAlone) {
  for (const Block& block : kBlocks) {
    LogRig rig({.disk_bytes = kFirstSegmentOffset + 16 * kSegment});
    rig.settle();
    ASSERT_TRUE(rig.put("removed", 1, 9'000));
    int next = fill(rig, 30);
    ASSERT_TRUE(rig.remove("removed"));
    rig.disk().fail_range(Kind::kRead, block.offset, kBlockBytes, EIO);
    // Three times the disk, so that each segment is cleaned.
    for (; next < 1'500; ++next) {
      ASSERT_TRUE(rig.put(key_of(next), 1, 9'000)) << block.name;
    }
    rig.settle();
    EXPECT_EQ(rig.log().report()[0].emptied, "") << block.name;
    rig.kill();
    rig.settle();
    EXPECT_FALSE(rig.get("removed")) << block.name;
    EXPECT_TRUE(rig.has(key_of(next - 1), 1)) << block.name;
  }
}

// An error that does not last, in the frame of a sealed segment with room left. The earlier footer can be read
// again, and must not hide later records.
TEST(TierFaults, AFooterThatCanBeReadAgainHidesNoLaterRecord) {
  for (const Block& block : kBlocks) {
    LogRig rig({});
    rig.settle();
    ASSERT_TRUE(rig.put("removed", 1, 9'000));
    ASSERT_TRUE(rig.put("large", 1, 150'000));
    ASSERT_TRUE(rig.put("next", 1, 150'000));  // seals the first segment
    rig.settle();
    rig.kill();
    rig.disk().fail_range(Kind::kRead, block.offset, kBlockBytes, EIO);
    rig.settle();
    ASSERT_TRUE(rig.remove("removed"));
    ASSERT_TRUE(rig.put("later", 1, 9'000));
    rig.kill();
    rig.settle();
    EXPECT_FALSE(rig.get("removed")) << block.name;
    for (const char* const key : {"large", "next", "later"}) {
      EXPECT_TRUE(rig.get(key)) << block.name << " " << key;
    }
  }
}

TEST(TierFaults, ABlockOfAnOpenSegmentThatCannotBeReadCostsTheObjectsInIt) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 40);
  ASSERT_TRUE(rig.remove(key_of(0)));
  const std::string last = key_of(count - 1);
  const std::uint64_t block = offset_of(rig, last) / kBlockBytes * kBlockBytes;
  rig.kill();
  rig.disk().fail_range(Kind::kRead, block, kBlockBytes, EIO);
  rig.settle();
  EXPECT_EQ(rig.log().report()[0].emptied, "");
  EXPECT_GE(present(rig, count), count - 3);
  EXPECT_FALSE(rig.get(key_of(0)));
}

// A power cut in the first batch of a segment may leave one header, and later damage may take it.
TEST(TierFaults, ASegmentWithOneHeaderIsCleanedBeforeDamageCostsIt) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LogRig rig({.seed = seed * 1'000});
    rig.settle();
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(rig.begin_put(key_of(i), 1, 9'000));
    for (std::uint64_t turn = 0; turn < seed % 20; ++turn) rig.turn();
    rig.power_cut();
    rig.settle();
    ASSERT_TRUE(rig.put("kept", 1, 9'000));
    ASSERT_TRUE(rig.put("removed", 1, 9'000));
    ASSERT_TRUE(rig.remove("removed"));
    rig.settle();
    const Place place = rig.log().find({"kept", LogRig::kNamespace})->place;
    rig.disk().flip_bit(kFirstSegmentOffset + number_of(place.segment) * kSegment + 20, 2);
    rig.kill();
    rig.settle();
    EXPECT_TRUE(rig.has("kept", 1)) << seed;
    EXPECT_FALSE(rig.get("removed")) << seed;
  }
}

TEST(TierFaults, RemovalsAreNotAcknowledgedWhileTheOnlyDiskIsLost) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 9'000));
  rig.kill();
  rig.disk().fail_range(Kind::kRead, 0, 2 * kBlockBytes, EIO);
  ASSERT_TRUE(rig.turn_until([&] { return rig.log().report()[0].state == DiskState::kFailed; }));
  EXPECT_FALSE(rig.remove("a"));
  rig.kill();
  rig.settle();
  EXPECT_TRUE(rig.has("a", 1)) << "the removal has failed";
}

// Records of a disk that failed are no reason to wait.
TEST(TierFaults, PutsGoOnAfterADiskFailsDuringRecovery) {
  for (int turns = 0; turns < 30; ++turns) {
    LogRig rig({.disks = 2});
    rig.settle();
    for (std::uint64_t version = 1; version <= 3; ++version) {
      for (int i = 0; i < 40; ++i) ASSERT_TRUE(rig.put(key_of(i), version, 9'000));
    }
    rig.kill();
    for (int turn = 0; turn < turns; ++turn) rig.turn();
    rig.disk(1).vanish();
    rig.settle();
    EXPECT_TRUE(rig.put("new", 1, 9'000)) << turns;
  }
}

// Reads do not keep a disk from emptying itself.
TEST(TierFaults, ADiskEmptiesItselfWhileItIsRead) {
  LogRig rig({.disk_bytes = kFirstSegmentOffset + 16 * kSegment});
  rig.settle();
  ASSERT_TRUE(rig.put("removed", 1, 9'000));
  ASSERT_TRUE(rig.remove("removed"));
  fill(rig, 60);
  rig.disk().fail_range(Kind::kRead, kFirstSegmentOffset, kSegment, EIO);
  std::deque<Bytes> buffers;
  int next = 60;
  ASSERT_TRUE(rig.turn_until([&] {
    rig.begin_put(key_of(next++), 1, 9'000);
    for (int i = std::max(0, next - 40); i < next; ++i) {
      Bytes& buffer = buffers.emplace_back(9'000);
      rig.log().read({key_of(i), LogRig::kNamespace}, {{buffer.data(), buffer.size()}},
                     Urgency::kGet, LogRig::kSumSeed);
    }
    return !rig.log().report()[0].emptied.empty();
  }));
  rig.disk().heal();
  EXPECT_TRUE(rig.put("new", 1, 9'000));
  EXPECT_TRUE(rig.has("new", 1));
}

// Flips a bit in each header of a removal on the disk, and returns their number.
int damage_removals(LogRig& rig) {
  int found = 0;
  std::vector<std::byte> bytes(sizeof(RecordHeader));
  for (std::uint64_t at = kFirstSegmentOffset; at + bytes.size() <= rig.disk().shape().bytes;
       at += kUnitBytes) {
    rig.disk().image().read(at, bytes);
    RecordHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != RecordHeader::kMagic || header.kind != RecordKind::kRemoval) continue;
    rig.disk().flip_bit(at + offsetof(RecordHeader, order), 1);
    ++found;
  }
  return found;
}

// The trailer of a sealed segment counts its removals.
TEST(TierFaults, ADiskWhoseRemovalsAreAllDamagedEmptiesItself) {
  for (const bool restarts : {true, false}) {
    LogRig rig({.disk_bytes = kFirstSegmentOffset + 16 * kSegment});
    rig.settle();
    ASSERT_TRUE(rig.put("removed", 1, 9'000));
    ASSERT_TRUE(rig.remove("removed"));
    int next = fill(rig, 60);  // the segment of the removal is sealed
    EXPECT_EQ(damage_removals(rig), 3) << "two copies and a footer";
    if (restarts) {
      rig.kill();
      rig.settle();
    } else {
      for (; next < 1'500; ++next) rig.put(key_of(next), 1, 9'000);
      rig.settle();
    }
    EXPECT_NE(rig.log().report()[0].emptied, "");
    EXPECT_FALSE(rig.get("removed"));
    EXPECT_TRUE(rig.put("new", 1, 9'000));
    EXPECT_TRUE(rig.has("new", 1));
  }
}

// Late reads of the disk then change no memory of a caller.
TEST(TierFaults, EachTicketOfADiskThatHangsEndsAfterHalfAMinute) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 100);
  rig.disk(1).set_slowness(2e6);  // a read takes 100 s
  std::vector<std::uint64_t> tickets;
  std::vector<Bytes> buffers(static_cast<std::size_t>(count), Bytes(9'000));
  for (int i = 0; i < count; ++i) {
    Bytes& buffer = buffers[static_cast<std::size_t>(i)];
    tickets.push_back(rig.log()
                          .read({key_of(i), LogRig::kNamespace}, {{buffer.data(), buffer.size()}},
                                Urgency::kGet, LogRig::kSumSeed)
                          .value());
  }
  for (int i = 0; i < 20; ++i) {
    const auto put = rig.begin_put("new/" + std::to_string(i), 1, 9'000);
    if (put) tickets.push_back(*put);
    tickets.push_back(rig.log().remove({key_of(i), LogRig::kNamespace})->value());
  }
  const std::uint64_t begin = rig.now_ns();
  for (const std::uint64_t ticket : tickets) rig.wait_for(ticket);
  EXPECT_LT(rig.now_ns() - begin, 40'000'000'000u);
  EXPECT_EQ(rig.log().report()[1].state, DiskState::kFailed);
  for (auto& buffer : buffers) std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
  while (rig.now_ns() - begin < 300'000'000'000u) rig.turn();
  for (const auto& buffer : buffers) ASSERT_EQ(buffer, Bytes(9'000, std::byte{0xee}));
  EXPECT_TRUE(rig.put("another", 1, 9'000));
  EXPECT_TRUE(rig.remove("another"));
}

// Reads that end do not hide a write that does not.
TEST(TierFaults, AWriteThatHangsFailsTheDiskWhileReadsGoOn) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 10);
  rig.disk().set_slowness(2e6);
  const auto put = rig.begin_put("hangs", 1, 9'000);
  ASSERT_TRUE(put);
  for (int turn = 0; turn < 10; ++turn) rig.turn();
  rig.disk().set_slowness(1);
  const std::uint64_t begin = rig.now_ns();
  for (int i = 0; !rig.end_of(*put) && rig.now_ns() - begin < 60'000'000'000u; ++i) {
    rig.has(key_of(i % count), 1);
    rig.turn();
  }
  EXPECT_LT(rig.now_ns() - begin, 40'000'000'000u);
  EXPECT_EQ(rig.wait_for(*put).outcome, LogEnd::Outcome::kFailed);
}

// Removals that waited for a disk that failed no longer count as waiting.
TEST(TierFaults, RemovalsGoOnAfterManyHaveWaitedForADiskThatFails) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 20);
  rig.kill();
  rig.disk(1).set_slowness(1e9);
  std::size_t asked = 0;
  while (rig.log().remove({"none/" + std::to_string(asked), LogRig::kNamespace})) ++asked;
  EXPECT_EQ(asked, Log::kMostRemovals);
  rig.settle();
  EXPECT_TRUE(rig.remove(key_of(0)));
  EXPECT_LT(present(rig, count), count);
}

// A removal of the key is on the other disk only: a power cut took it from this one.
TEST(TierFaults, ARemovalOnAnotherDiskAloneDoesNotHideARecordForGood) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    LogRig rig({.disks = 2, .seed = seed * 1'000});
    rig.settle();
    const int count = fill(rig, 40);
    rig.kill();
    // During recovery, a removal goes to both disks.
    ASSERT_TRUE(
        rig.turn_until([&] { return rig.log().report()[1].state == DiskState::kRecovering; }));
    for (int i = 0; i < count; ++i) ASSERT_TRUE(rig.log().remove({key_of(i), LogRig::kNamespace}));
    for (std::uint64_t turn = 0; turn < seed; ++turn) rig.turn();
    rig.power_cut();
    rig.settle();
    // The disks are rid of such records by now: a removal of another key needs no write.
    EXPECT_FALSE(rig.log().remove({"never put", LogRig::kNamespace}).value()) << seed;
    EXPECT_TRUE(rig.dropped().empty()) << seed;
    std::vector<bool> gone;
    const auto expect_none = [&] {
      rig.settle();
      for (int i = 0; i < count; ++i) {
        if (!gone[static_cast<std::size_t>(i)]) continue;
        EXPECT_FALSE(rig.get(key_of(i))) << seed;
      }
    };
    for (int i = 0; i < count; ++i) {
      gone.push_back(!rig.get(key_of(i)));
      if (gone.back()) {
        EXPECT_TRUE(rig.remove(key_of(i)));
      }
    }
    // Whichever disk is here, an acknowledged removal holds.
    for (const bool first : {true, false}) {
      rig.restart_with({first, !first});
      expect_none();
    }
    rig.restart_with({true, true});
    expect_none();
  }
}

// The disk fails at any moment of a start; its superblock may have the new run already.
TEST(TierFaults, ADiskThatFailsDuringAStartBringsNoRemovedObjectBack) {
  for (int turns = 0; turns < 40; ++turns) {
    LogRig rig({.disks = 2});
    rig.settle();
    const int count = fill(rig, 40);
    rig.kill();
    for (int turn = 0; turn < turns; ++turn) rig.turn();
    rig.disk(1).vanish();
    rig.settle();
    for (int i = 0; i < count; ++i) EXPECT_TRUE(rig.remove(key_of(i)));
    rig.restart_with({true, true});
    rig.settle();
    EXPECT_EQ(present(rig, count), 0) << turns;
  }
}

// The number of a disk that is away is not given to a new one.
TEST(TierFaults, ANewDiskBesideAMissingOneKeepsItsObjectsWhenTheMissingOneReturns) {
  LogRig rig({.disks = 3});
  rig.restart_with({true, true, false});
  rig.settle();
  rig.restart_with({true, false, true});
  rig.settle();
  const int count = fill(rig, 60);
  rig.restart_with({true, true, true});
  rig.settle();
  for (const DiskReport& report : rig.log().report()) EXPECT_EQ(report.state, DiskState::kServing);
  EXPECT_EQ(present(rig, count), count);
}

TEST(TierFaults, CutsDuringTheFirstStartsRefuseNoDisk) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    LogRig rig({.disks = 3, .seed = seed * 1'000});
    for (std::uint64_t cut = 0; cut < 4; ++cut) {
      for (std::uint64_t turn = 0; turn < (seed + 7 * cut) % 24; ++turn) rig.turn();
      rig.power_cut();
    }
    rig.settle();
    for (const DiskReport& report : rig.log().report()) {
      EXPECT_EQ(report.state, DiskState::kServing) << report.text;
    }
    const int count = fill(rig, 30);
    // Half of the disks begin a new tier, and are cut off meanwhile.
    rig.restart_with({false, false, true});
    for (std::uint64_t turn = 0; turn < seed % 24; ++turn) rig.turn();
    rig.restart_with({true, true, true});
    rig.settle();
    for (const DiskReport& report : rig.log().report()) {
      EXPECT_EQ(report.state, DiskState::kServing) << report.text;
    }
    EXPECT_LE(present(rig, count), count);
  }
}

// Other systems have their marks behind the first 64 KiB (btrfs) or at the end (md, GPT).
TEST(TierFaults, DataAnywhereAtTheEdgesOfADiskAreOtherData) {
  constexpr std::uint64_t kDisk = 16 << 20;
  for (const std::uint64_t offset : {std::uint64_t{64 << 10}, kDisk - (64 << 10), kDisk - 512}) {
    LogRig rig({});
    SparseBytes image;
    const std::string text = "_BHRfS_M";
    image.write(offset, std::as_bytes(std::span(text)));
    rig.kill(image);
    ASSERT_TRUE(rig.turn_until([&] { return rig.log().idle(); }));
    EXPECT_EQ(rig.log().report()[0].state, DiskState::kRefused) << offset;
    EXPECT_EQ(rig.disk().counts().writes, 0u);
  }
}

}  // namespace
}  // namespace mc::tier::testing
