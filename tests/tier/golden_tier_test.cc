// SPDX-License-Identifier: Apache-2.0
//
// The bytes on a disk of the tier, format 2. Today's log writes these bytes, and finds the objects of
// a disk with these bytes. If one of these tests fails, the layout has changed: give the layout a new
// kFormat and a new golden file (tests/golden/README.md), and keep the old file unchanged.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "libmc/base/checksum.h"
#include "tier/log_rig.h"
#include "unit/golden_file.h"

namespace mc::tier::testing {
namespace {

static_assert(kFormat == 2, "a new format: add its golden file and its tests");

constexpr char kFile[] = "tier-v2.txt";
constexpr char kEarlierFile[] = "tier-v1.txt";
constexpr std::uint64_t kSmall = 200, kLarge = 120'000;

struct Section {
  const char* name;
  std::uint64_t offset, bytes;
};
constexpr Section kSections[] = {
    {"superblocks", 0, kSuperblocks* kBlockBytes},
    {"segment", kFirstSegmentOffset, 16 * kBlockBytes},
    {"segment's end", kFirstSegmentOffset + kSmallestSegmentBytes - 2 * kBlockBytes,
     2 * kBlockBytes},
    {"next segment", kFirstSegmentOffset + kSmallestSegmentBytes, 4 * kBlockBytes}};

SparseBytes disk_of(const char* file) {
  SparseBytes image;
  for (const auto& [name, bytes] : golden::read(file)) {
    for (const Section& section : kSections) {
      if (name == section.name) image.write(section.offset, bytes);
    }
  }
  return image;
}

// An object of zeros.
void put_zeros(LogRig& rig, const std::string& key, std::uint64_t version, std::uint64_t length) {
  static const std::vector<std::byte> kZeros(kLarge);
  const NewObject object{.name = {key, LogRig::kNamespace},
                         .version = version,
                         .length = length,
                         .sum_seed = LogRig::kSumSeed,
                         .checksum = checksum(LogRig::kSumSeed, kZeros.data(), length),
                         .parent_hash = 0x1122334455667788,
                         .group = 3};
  const auto ticket = rig.log().put(object, {{const_cast<std::byte*>(kZeros.data()), length}});
  ASSERT_TRUE(ticket);
  EXPECT_EQ(rig.wait_for(*ticket).outcome, LogEnd::Outcome::kDone);
}

// An object, another version and a removal; then two that fill the segment.
void fill_two_segments(LogRig& rig) {
  rig.settle();
  put_zeros(rig, "golden/kept", 1, kSmall);
  put_zeros(rig, "golden/renewed", 1, kSmall);
  put_zeros(rig, "golden/renewed", 2, kSmall + 1);
  put_zeros(rig, "golden/removed", 1, kSmall);
  ASSERT_TRUE(rig.remove("golden/removed"));
  put_zeros(rig, "golden/large", 1, kLarge);
  put_zeros(rig, "golden/next", 1, kLarge);
  rig.settle();
}

TEST(GoldenTier, TheLogWritesTheBytesOfFormatTwo) {
  LogRig rig({});
  fill_two_segments(rig);
  const auto sections = golden::read(kFile);
  EXPECT_EQ(sections.size(), std::size(kSections));
  for (const Section& section : kSections) {
    std::vector<std::byte> ours(section.bytes);
    rig.disk().image().read(section.offset, ours);
    const auto at = sections.find(section.name);
    if (at == sections.end()) {
      ADD_FAILURE() << "not in the golden file:\n" << golden::section_text(section.name, ours);
      continue;
    }
    EXPECT_EQ(golden::to_text(at->second), golden::to_text(ours)) << section.name;
  }
}

TEST(GoldenTier, TheLogFindsTheObjectsOfFormatTwo) {
  LogRig rig({});
  rig.kill(disk_of(kFile));
  rig.recover();
  EXPECT_EQ(rig.log().object_count(), 4u);
  for (const auto& [key, version, length] :
       {std::tuple("golden/kept", 1u, kSmall), std::tuple("golden/renewed", 2u, kSmall + 1),
        std::tuple("golden/large", 1u, kLarge), std::tuple("golden/next", 1u, kLarge)}) {
    const auto got = rig.get(key);
    ASSERT_TRUE(got) << key;
    EXPECT_EQ(got->end.outcome, LogEnd::Outcome::kDone) << key;
    EXPECT_EQ(got->end.header.version, version) << key;
    EXPECT_EQ(got->end.header.group, 3u) << key;
    EXPECT_EQ(got->end.header.parent_hash, 0x1122334455667788u) << key;
    EXPECT_EQ(got->bytes, std::vector<std::byte>(length)) << key;
  }
  EXPECT_EQ(rig.log().find({"golden/removed", LogRig::kNamespace}), nullptr);
}

TEST(GoldenTier, ADiskOfFormatOneIsEmptied) {
  LogRig rig({});
  rig.kill(disk_of(kEarlierFile));
  rig.recover();
  EXPECT_EQ(rig.log().object_count(), 0u);
  EXPECT_EQ(rig.log().report().front().emptied, "an earlier version of mc wrote the disk");
  EXPECT_TRUE(rig.put("a", 1, 100));
  EXPECT_TRUE(rig.get("a"));
}

}  // namespace
}  // namespace mc::tier::testing
