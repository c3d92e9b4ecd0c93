// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tier/log_rig.h"

namespace mc::tier::testing {
namespace {

using Outcome = LogEnd::Outcome;

TEST(TierLog, AnObjectComesBackFromTheDisk) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 20'000));
  EXPECT_TRUE(rig.has("a", 1));
  EXPECT_FALSE(rig.get("b"));
}

TEST(TierLog, SizesFromNothingToTheLargestObjectComeBack) {
  LogRig rig({});
  rig.settle();
  const std::uint64_t largest = largest_object(kSmallestSegmentBytes, 1);
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{64},
                                   std::uint64_t{4'095}, std::uint64_t{4'096}, largest}) {
    const std::string key(1, static_cast<char>('a' + size % 26));
    ASSERT_TRUE(rig.put(key, size, size)) << size;
    EXPECT_TRUE(rig.has(key, size)) << size;
  }
  const auto refused = rig.begin_put("z", 1, largest + kUnitBytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), Log::Refusal::kTooLarge);
}

TEST(TierLog, EveryDurableObjectIsThereAfterAKillAndAPowerCut) {
  LogRig rig({});
  rig.settle();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(rig.put(key_of(i), 5, 9'000));
  rig.kill();
  rig.recover();
  EXPECT_EQ(rig.log().object_count(), 200u);
  rig.power_cut();
  rig.recover();
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(rig.has(key_of(i), 5)) << i;
}

TEST(TierLog, AfterAStartTheLatestObjectsAreFoundFirst) {
  LogRig rig({});
  constexpr int count = 1500;
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(rig.turn_until([&] { return rig.begin_put(key_of(i), 1, 9'000).has_value(); }));
  }
  rig.settle();
  rig.kill();
  const std::string latest = key_of(count - 1);
  ASSERT_TRUE(rig.turn_until([&] {
    return rig.log().find({latest, LogRig::kNamespace}) != nullptr;
  }));
  EXPECT_EQ(rig.log().find({key_of(0), LogRig::kNamespace}), nullptr);
  rig.recover();
  EXPECT_EQ(present(rig, count), count);
}

TEST(TierLog, AReadTakesTheSectorsOfItsRecord) {
  LogRig rig({});
  ASSERT_TRUE(rig.put("other", 1, 100));
  ASSERT_TRUE(rig.put("object", 1, 16 << 10));
  const std::uint64_t before = rig.disk().counts().read_bytes;
  ASSERT_TRUE(rig.has("object", 1));
  EXPECT_LE(rig.disk().counts().read_bytes - before, (16 << 10) + 2 * kSectorBytes);
}

TEST(TierLog, TheSizeOfTheDiskDecidesOnTheSizeOfItsSegments) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::pair<std::uint64_t, std::uint64_t> kSizes[] = {
      {64, 2}, {256, 8}, {512, 8}, {1024, 16}, {16 << 10, 32}, {32 << 10, 64}, {256 << 10, 64}};
  for (const auto& [disk_mib, segment_mib] : kSizes) {
    LogRig rig({.disk_bytes = disk_mib * kMiB, .segment_bytes = 0});
    ASSERT_TRUE(rig.turn_until([&] { return rig.log().takes_puts(); }));
    EXPECT_EQ(rig.log().report()[0].segments, (disk_mib - 1) / segment_mib) << disk_mib;
    const std::size_t most = segment_mib * kMiB - 32'768;
    EXPECT_TRUE(rig.begin_put("fits", 1, most));
    EXPECT_EQ(rig.begin_put("large", 1, segment_mib * kMiB).error(), Log::Refusal::kTooLarge);
    rig.settle();
    EXPECT_TRUE(rig.has("fits", 1));
  }
}

TEST(TierLog, ARemovedObjectDoesNotComeBack) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  ASSERT_TRUE(rig.remove("a"));
  EXPECT_FALSE(rig.get("a"));
  EXPECT_FALSE(rig.log().remove({"a", LogRig::kNamespace}).value());
  rig.power_cut();
  rig.recover();
  EXPECT_FALSE(rig.get("a"));
}

TEST(TierLog, ARemovalDuringRecoveryCounts) {
  LogRig rig({});
  rig.settle();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rig.put(key_of(i), 1, 9'000));
  rig.kill();
  // No disk is open yet.
  const auto early = rig.log().remove({key_of(0), LogRig::kNamespace}).value();
  ASSERT_TRUE(early);
  ASSERT_TRUE(
      rig.turn_until([&] { return rig.log().report()[0].state == DiskState::kRecovering; }));
  ASSERT_TRUE(rig.log().recovering());
  ASSERT_TRUE(rig.remove(key_of(1)));
  EXPECT_EQ(rig.wait_for(*early).outcome, Outcome::kDone);
  rig.recover();
  EXPECT_FALSE(rig.get(key_of(0)));
  EXPECT_FALSE(rig.get(key_of(1)));
  rig.power_cut();
  rig.recover();
  EXPECT_FALSE(rig.get(key_of(0)));
  EXPECT_FALSE(rig.get(key_of(1)));
  EXPECT_TRUE(rig.has(key_of(2), 1));
}

// Removals that came before the disks were known are still being written when recovery has ended.
TEST(TierLog, APutAfterManyEarlyRemovalsIsNotRemoved) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put(key_of(0), 1, 9'000));
  rig.kill();
  for (int i = 1; i < 60'000; ++i) ASSERT_TRUE(rig.log().remove({key_of(i), LogRig::kNamespace}));
  ASSERT_TRUE(rig.log().remove({key_of(0), LogRig::kNamespace}));
  std::optional<std::uint64_t> put;
  ASSERT_TRUE(rig.turn_until([&] {
    EXPECT_EQ(rig.log().find({key_of(0), LogRig::kNamespace}), nullptr);
    const auto begun = rig.begin_put(key_of(0), 2, 9'000);
    if (begun) put = *begun;
    return begun.has_value();
  }));
  EXPECT_EQ(rig.wait_for(*put).outcome, Outcome::kDone);
  rig.settle();
  EXPECT_TRUE(rig.has(key_of(0), 2));
}

TEST(TierLog, AnotherVersionReplacesTheFirstOne) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  const auto same = rig.begin_put("a", 1, 5'000);
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error(), Log::Refusal::kExists);
  ASSERT_TRUE(rig.put("a", 2, 6'000));
  EXPECT_TRUE(rig.has("a", 2));
  rig.power_cut();
  rig.recover();
  EXPECT_TRUE(rig.has("a", 2));
}

TEST(TierLog, AFullDiskKeepsTheObjectsThatAreRead) {
  LogRig rig({});
  rig.settle();
  // Twice the disk; the first 50 objects are read again and again.
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_TRUE(rig.begin_put(key_of(i), 1, 9'000)) << i;
    if (i % 100 != 99) continue;
    rig.settle();
    for (int hot = 0; hot < 50; ++hot) EXPECT_TRUE(rig.has(key_of(hot), 1)) << hot << " at " << i;
  }
  rig.settle();
  const DiskReport report = rig.log().report()[0];
  EXPECT_GT(report.cleaner.dropped, 1'000u);
  EXPECT_EQ(report.cleaner.dropped, rig.dropped().size());
  EXPECT_EQ(rig.log().object_count() + report.cleaner.dropped, 3'000u);
  const double amplification =
      static_cast<double>(report.log.written_bytes) / static_cast<double>(report.log.new_bytes);
  EXPECT_LT(amplification, 1.3);
  rig.power_cut();
  rig.recover();
  for (int hot = 0; hot < 50; ++hot) EXPECT_TRUE(rig.has(key_of(hot), 1));
}

TEST(TierLog, AFullDiskOfFewSegmentsKeepsFewOfThemFree) {
  constexpr std::uint32_t kSegments = 72;  // as a disk of 576 MiB
  LogRig rig({.disk_bytes = (kSegments + 1) * kSmallestSegmentBytes});
  rig.settle();
  for (int i = 0; i < 4'500; ++i) {
    ASSERT_TRUE(rig.begin_put(key_of(i), 1, 9'000)) << i;
    if (i % 100 == 99) rig.settle();
  }
  const DiskReport report = rig.log().report()[0];
  EXPECT_EQ(report.segments, kSegments);
  EXPECT_GT(report.cleaner.dropped, 2'000u);
  EXPECT_LE(report.free_segments, 4u);
}

// Each round writes the disk anew, with readers, upserts and removals.
TEST(TierLog, ASoakKeepsAmplificationMemoryAndObjectsSteady) {
  const char* const text = std::getenv("MC_TIER_ROUNDS");
  const int rounds = text == nullptr ? 8 : std::atoi(text);
  ASSERT_GE(rounds, 4) << "MC_TIER_ROUNDS";
  constexpr int kPutsOfRound = 1'600;
  LogRig rig({});
  rig.settle();
  std::mt19937_64 random(7);
  struct Round {
    double amplification = 0;
    std::uint64_t memory_bytes = 0, objects = 0;
    int hits = 0;  // of 640 reads
  };
  std::vector<Round> seen;
  int next = 0;
  DiskLog::Counters before;
  for (int round = 0; round < rounds; ++round) {
    int hits = 0;
    for (int i = 0; i < kPutsOfRound; ++i) {
      const bool again = next > 100 && random() % 10 == 0;
      const int number = again ? next - 1 - static_cast<int>(random() % 100) : next++;
      const std::uint64_t version = again ? 1'000'000u + static_cast<unsigned>(next) : 1;
      ASSERT_TRUE(rig.turn_until([&] {
        const auto put = rig.begin_put(key_of(number), version, 9'000);
        return put || put.error() == Log::Refusal::kExists;
      }));
      if (i % 50 != 49) continue;
      rig.settle();
      for (int read = 0; read < 20; ++read) {
        // Later objects are read more often.
        const std::uint64_t back = random() % 1'000 * (random() % 1'000) / 1'000;
        const auto got = rig.get(key_of(std::max(0, next - 1 - static_cast<int>(back))));
        EXPECT_TRUE(!got || got->end.outcome == Outcome::kDone);
        if (got) ++hits;
      }
      for (int gone = 0; gone < 5; ++gone) {
        const int doomed = next - 1 - static_cast<int>(random() % 1'000);
        EXPECT_TRUE(rig.remove(key_of(std::max(0, doomed))));
      }
      rig.forget_ends();
    }
    const DiskReport report = rig.log().report()[0];
    seen.push_back({static_cast<double>(report.log.written_bytes - before.written_bytes) /
                        static_cast<double>(report.log.new_bytes - before.new_bytes),
                    rig.log().memory_bytes(), rig.log().object_count(), hits});
    before = report.log;
  }
  // The disk is full from the third round on.
  for (std::size_t i = 2; i < seen.size(); ++i) {
    EXPECT_LT(seen[i].amplification, seen[2].amplification * 1.15) << "round " << i;
    EXPECT_LE(seen[i].memory_bytes, seen[2].memory_bytes * 11 / 10) << "round " << i;
    EXPECT_GE(seen[i].objects, seen[2].objects * 9 / 10) << "round " << i;
    EXPECT_GE(seen[i].hits, seen[2].hits * 9 / 10) << "round " << i;
    EXPECT_GT(seen[i].hits, 400) << "round " << i;
  }
}

TEST(TierLog, IfCopiesRunShortTheObjectsThatAreReadMostStay) {
  LogRig rig({});
  rig.settle();
  constexpr int kHot = 150, kWarm = 900, kRounds = 80;
  const auto read_or_put = [&rig](int i) {
    if (rig.has(key_of(i), 1)) return true;
    EXPECT_TRUE(rig.begin_put(key_of(i), 1, 9'000)) << i;
    return false;
  };
  // More objects are read than the bytes for copies can keep.
  int hot_misses = 0, warm_misses = 0, next = kHot + kWarm;
  fill(rig, next);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(rig.begin_put(key_of(next++), 1, 9'000));
    rig.settle();
    for (int i = 0; i < kHot; ++i) hot_misses += read_or_put(i) ? 0 : 1;
    if (round % 8 != 0) continue;
    for (int i = kHot; i < kHot + kWarm; ++i) warm_misses += read_or_put(i) ? 0 : 1;
  }
  const DiskReport report = rig.log().report()[0];
  EXPECT_GT(report.cleaner.dropped, 1'000u);
  EXPECT_GT(warm_misses, kWarm);
  EXPECT_LT(hot_misses, kHot * kRounds / 100);
  EXPECT_LT(static_cast<double>(report.cleaner.copied_bytes),
            0.3 * static_cast<double>(report.log.new_bytes));
}

TEST(TierLog, ADamagedObjectIsToldAsSuchAndTheOthersAreServed) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  ASSERT_TRUE(rig.put("b", 1, 5'000));
  const TierEntry* const entry = rig.log().find({"a", LogRig::kNamespace});
  ASSERT_NE(entry, nullptr);
  rig.disk().flip_bit(kFirstSegmentOffset +
                          number_of(entry->place.segment) * kSmallestSegmentBytes +
                          entry->place.unit * kUnitBytes + 1'000,
                      3);
  const auto got = rig.get("a");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->end.outcome, Outcome::kDamaged);
  EXPECT_FALSE(rig.get("a"));
  EXPECT_TRUE(rig.has("b", 1));
  // The same version may be written again.
  EXPECT_TRUE(rig.put("a", 1, 5'000));
  EXPECT_TRUE(rig.has("a", 1));
}

TEST(TierLog, AReadErrorOfTheDiskIsNoDamage) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  rig.disk().fail_next(ModelDisk::Kind::kRead, 1, EIO);
  const auto got = rig.get("a");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->end.outcome, Outcome::kFailed);
  EXPECT_EQ(got->end.error, EIO);
  EXPECT_TRUE(rig.has("a", 1));
}

TEST(TierLog, AMisdirectedWriteIsFoundByItsReads) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 100'000));
  rig.disk().misdirect_next_write(kFirstSegmentOffset + 8 * kBlockBytes);
  ASSERT_TRUE(rig.put("b", 1, 3'000));
  const auto b = rig.get("b");
  EXPECT_EQ(b->end.outcome, Outcome::kDamaged);
  const auto a = rig.get("a");
  EXPECT_EQ(a->end.outcome, Outcome::kDamaged);
}

TEST(TierLog, AFailedWriteEndsTheDiskAndTheNextStartIsEmpty) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  rig.disk().fail_next(ModelDisk::Kind::kWrite, 1, EIO);
  EXPECT_FALSE(rig.put("b", 1, 5'000));
  EXPECT_EQ(rig.log().report()[0].state, DiskState::kFailed);
  EXPECT_NE(rig.log().report()[0].text.find("Replace the disk"), std::string::npos);
  rig.settle();
  EXPECT_FALSE(rig.get("a"));
  rig.kill();
  rig.recover();
  EXPECT_EQ(rig.log().object_count(), 0u);
  EXPECT_TRUE(rig.put("a", 1, 5'000));
}

TEST(TierLog, ARemovalOnADiskThatIsGoneSaysThatItFailed) {
  LogRig rig({});
  rig.settle();
  ASSERT_TRUE(rig.put("a", 1, 5'000));
  rig.disk().vanish();
  EXPECT_FALSE(rig.remove("a"));
  const auto refused = rig.begin_put("b", 1, 100);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), Log::Refusal::kUnavailable);
}

TEST(TierLog, ADiskWithOtherDataIsNeverWritten) {
  SparseBytes image;
  const std::string text = "an ext4 file system, for example";
  image.write(1'024, std::as_bytes(std::span(text)));
  auto disk = std::make_unique<ModelDisk>(16 << 20, 1, image);
  ModelDisk& model = *disk;
  DiskWorker worker(std::move(disk));
  Log log({{.jobs = &worker, .name = "/dev/sdz"}}, {.random = 1});
  for (int i = 0; i < 100; ++i) {
    model.set_now(static_cast<std::uint64_t>(i) * 1'000'000);
    worker.do_work(static_cast<std::uint64_t>(i) * 1'000'000);
    log.do_work(static_cast<std::uint64_t>(i) * 1'000'000);
  }
  EXPECT_EQ(log.report()[0].state, DiskState::kRefused);
  EXPECT_NE(log.report()[0].text.find("/dev/sdz: the disk has other data"), std::string::npos);
  EXPECT_EQ(model.counts().writes, 0u);
  EXPECT_FALSE(log.recovering());
}

TEST(TierLog, ObjectsAreSpreadOverAllDisksAndAllComeBack) {
  LogRig rig({.disks = 3});
  rig.settle();
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 300; ++i) tickets.push_back(*rig.begin_put(key_of(i), 1, 9'000));
  rig.settle();
  for (const DiskReport& report : rig.log().report()) EXPECT_GT(report.log.puts, 30u);
  rig.power_cut();
  rig.recover();
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(rig.has(key_of(i), 1));
}

TEST(TierLog, ADiskThatMissedAStartComesBackEmpty) {
  LogRig rig({.disks = 3});
  rig.settle();
  const int count = fill(rig, 150);
  rig.restart_with({true, true, false});
  rig.settle();
  const int without = present(rig, count);
  EXPECT_GT(without, 50);
  EXPECT_LT(without, 140);
  // A removal of an object on the disk that is away.
  for (int i = 0; i < count; ++i) {
    if (rig.log().find({key_of(i), LogRig::kNamespace}) != nullptr) continue;
    EXPECT_TRUE(rig.remove(key_of(i)));
  }
  rig.restart_with({true, true, true});
  rig.settle();
  EXPECT_EQ(present(rig, count), without);
}

TEST(TierLog, HalfOfTheDisksMayHaveServedAloneAndStartEmpty) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 100);
  rig.restart_with({true, false});  // has the lowest number
  rig.settle();
  const int of_first = present(rig, count);
  EXPECT_GT(of_first, 10);
  rig.restart_with({false, true});
  rig.settle();
  EXPECT_EQ(present(rig, count), 0);
}

TEST(TierLog, AKillAtAnyMomentOfTheStartLosesNoObject) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 60);
  for (int turns = 0; turns < 60; ++turns) {
    for (int turn = 0; turn < turns; ++turn) rig.turn();
    if (turns % 2 == 0) {
      rig.kill();
    } else {
      rig.power_cut();
    }
  }
  rig.settle();
  EXPECT_EQ(present(rig, count), count);
}

TEST(TierLog, ADiskThatFailsAndComesBackHasNoRemovedObject) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 100);
  rig.disk(1).fail_next(ModelDisk::Kind::kWrite, UINT64_MAX, EIO);
  // Removals on both disks: the second one fails, and its objects leave.
  for (int i = 0; i < count; ++i) ASSERT_TRUE(rig.log().remove({key_of(i), LogRig::kNamespace}));
  rig.settle();
  EXPECT_EQ(rig.log().report()[1].state, DiskState::kFailed);
  for (int i = 0; i < count; ++i) EXPECT_TRUE(rig.remove(key_of(i)));
  rig.kill();
  rig.settle();
  EXPECT_EQ(present(rig, count), 0);
}

TEST(TierLog, ASmallerAndLaterLargerDiskBringsNoRemovedObjectBack) {
  LogRig rig({});
  rig.settle();
  const int count = fill(rig, 1'000);
  rig.resize_disks(4 << 20);
  rig.settle();
  for (int i = 0; i < count; ++i) EXPECT_TRUE(rig.remove(key_of(i)));
  rig.resize_disks(16 << 20);
  rig.settle();
  EXPECT_EQ(present(rig, count), 0);
}

TEST(TierLog, ALargerDiskKeepsItsObjects) {
  LogRig rig({.disk_bytes = 4 << 20});
  rig.settle();
  const int count = fill(rig, 100);
  rig.resize_disks(16 << 20);
  rig.settle();
  EXPECT_EQ(present(rig, count), count);
}

TEST(TierLog, ADiskWithTooFewSegmentsIsRefused) {
  LogRig rig({.disk_bytes = 1 << 20});
  ASSERT_TRUE(rig.turn_until([&] { return rig.log().idle(); }));
  EXPECT_EQ(rig.log().report()[0].state, DiskState::kRefused);
  EXPECT_NE(rig.log().report()[0].text.find("raise tier_bytes"), std::string::npos);
}

TEST(TierLog, ADiskThatHangsFailsAndTheOthersServe) {
  LogRig rig({.disks = 2});
  rig.settle();
  rig.disk(1).set_slowness(1e9);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rig.begin_put(key_of(i), 1, 9'000));
  ASSERT_TRUE(rig.turn_until([&] { return rig.log().report()[1].state == DiskState::kFailed; }));
  EXPECT_NE(rig.log().report()[1].text.find("timed out"), std::string::npos);
  EXPECT_TRUE(rig.put("another", 1, 9'000));
  EXPECT_GT(present(rig, 100), 10);
}

TEST(TierLog, ADiskThatNeverAnswersDoesNotStopTheOthers) {
  LogRig rig({.disks = 2});
  rig.settle();
  const int count = fill(rig, 100);
  rig.kill();
  rig.disk(1).set_slowness(1e9);
  rig.settle();
  EXPECT_EQ(rig.log().report()[1].state, DiskState::kFailed);
  EXPECT_GT(present(rig, count), 10);
}

TEST(TierLog, ATornTailLosesOnlyRecordsThatWereNotDurable) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    LogRig rig({.seed = seed * 1'000});
    rig.settle();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(rig.put(key_of(i), 1, 9'000));
    for (int i = 10; i < 60; ++i) ASSERT_TRUE(rig.begin_put(key_of(i), 1, 9'000));
    for (std::uint64_t turn = 0; turn < seed; ++turn) rig.turn();
    rig.power_cut();
    rig.recover();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(rig.has(key_of(i), 1)) << seed;
    for (int i = 10; i < 60; ++i) {
      if (rig.log().find({key_of(i), LogRig::kNamespace}) != nullptr) {
        EXPECT_TRUE(rig.has(key_of(i), 1)) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace mc::tier::testing
