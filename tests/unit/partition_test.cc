// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/key_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "metadata/placement/partition_spread.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;

using Names = std::vector<std::string>;

std::map<std::string, std::size_t> counts_of(const Names& master_of) {
  std::map<std::string, std::size_t> parts;
  for (const std::string& master : master_of) ++parts[master];
  return parts;
}

// Agents and masters of different versions must agree on these for ever.
TEST(Partition, OfTheseKeysNeverChanges) {
  const KeyHasher hasher("golden");
  std::vector<std::uint32_t> of_two, of_four, of_seven, of_all;
  for (const char* const key : {"a", "b", "c", "model/7/layer/0", "model/7/layer/1", ""}) {
    const KeyHash hash = hasher.hash("default", key);
    of_two.push_back(partition_of(hash, 2));
    of_four.push_back(partition_of(hash, 4));
    of_seven.push_back(partition_of(hash, 7));
    of_all.push_back(partition_of(hash, kMaxPartitions));
  }
  EXPECT_THAT(of_two, ElementsAre(0u, 0u, 1u, 0u, 1u, 0u));
  EXPECT_THAT(of_four, ElementsAre(0u, 0u, 2u, 0u, 2u, 1u));
  EXPECT_THAT(of_seven, ElementsAre(1u, 1u, 3u, 0u, 5u, 2u));
  EXPECT_THAT(of_all, ElementsAre(13u, 14u, 35u, 1u, 47u, 20u));
}

TEST(Partition, CutsTheKeySpaceByTheTopBits) {
  EXPECT_EQ(partition_of({UINT64_MAX, UINT64_MAX}, 1), 0u);
  EXPECT_EQ(partition_of({0, UINT64_MAX}, kMaxPartitions), 0u);
  EXPECT_EQ(partition_of({UINT64_MAX, 0}, kMaxPartitions), kMaxPartitions - 1);
  EXPECT_EQ(partition_of({UINT64_MAX / 2 + 1, 0}, 2), 1u);
  EXPECT_EQ(partition_of({UINT64_MAX / 2, 0}, 2), 0u);
}

TEST(PartitionSpread, AssignsNothingWithoutMasters) {
  EXPECT_THAT(spread_partitions({}, Names(3)), ElementsAre("", "", ""));
}

TEST(PartitionSpread, GivesMastersThatStartTogetherEqualCounts) {
  const auto parts = counts_of(spread_partitions(Names{"b", "a"}, Names(4)));
  EXPECT_EQ(parts.at("a"), 2u);
  EXPECT_EQ(parts.at("b"), 2u);
}

TEST(PartitionSpread, ANewMasterTakesTheSurplusOfTheOthers) {
  EXPECT_THAT(spread_partitions(Names{"a", "b"}, Names{"a", "a", "a", "a"}),
              ElementsAre("a", "a", "b", "b"));
  EXPECT_THAT(spread_partitions(Names{"a", "b", "c"}, Names{"a", "b", "a", "b"}),
              ElementsAre("a", "b", "a", "c"));
}

TEST(PartitionSpread, TheOthersTakeAllPartitionsOfALostMaster) {
  EXPECT_THAT(spread_partitions(Names{"b"}, Names{"", "", "b", "b"}),
              ElementsAre("b", "b", "b", "b"));
}

TEST(PartitionSpread, ALeaderWithALiveLeaseKeepsItsPartitions) {
  EXPECT_THAT(spread_partitions(Names{"a"}, Names{"away", "a"}), ElementsAre("away", "a"));
}

TEST(PartitionSpread, CountsDifferByAtMostOneAndMovesAreFewest) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::size_t masters = 1 + random() % 6, partitions = 1 + random() % kMaxPartitions;
    Names names, leaders;
    for (std::size_t i = 0; i < masters; ++i) names.push_back("m" + std::to_string(i));
    for (std::size_t i = 0; i < partitions; ++i) {
      leaders.push_back(random() % 4 == 0 ? "" : names[random() % masters]);
    }
    const Names master_of = spread_partitions(names, leaders);
    std::shuffle(names.begin(), names.end(), random);
    EXPECT_EQ(spread_partitions(names, leaders), master_of)
        << "the order of the masters does not matter";
    auto before = counts_of(leaders);
    auto parts = counts_of(master_of);
    EXPECT_FALSE(parts.contains(""));
    for (const std::string& name : names) {
      EXPECT_GE(parts[name], partitions / masters);
      EXPECT_LE(parts[name], (partitions + masters - 1) / masters);
    }
    for (std::size_t i = 0; i < partitions; ++i) {
      if (!leaders[i].empty() && master_of[i] != leaders[i]) {
        EXPECT_GT(before[leaders[i]], partitions / masters)
            << "a master gave a partition that it could have kept";
      }
    }
    EXPECT_EQ(spread_partitions(names, master_of), master_of)
        << "a second spread must change nothing";
  }
}

}  // namespace
}  // namespace mc::metadata
