// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/index/tier_index.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace mc::tier {
namespace {

TierEntry entry_of(std::uint64_t number) {
  const TierKey key = tier_key({std::to_string(number), 1}, 2);
  return {.hash = key.hash,
          .more = key.more,
          .place = {.segment = static_cast<std::uint32_t>(number), .unit = 1},
          .length = 16384};
}

TEST(TierIndex, AgreesWithAMapOverRandomInsertionsAndErasures) {
  TierIndex index;
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::mt19937_64 random(1);
  for (int step = 0; step < 200'000; ++step) {
    const std::uint64_t number = random() % 20'000;
    const auto found = known.find(number);
    ASSERT_EQ(index.find(entry_of(number).key()), found == known.end() ? kNoEntry : found->second);
    if (found == known.end()) {
      known[number] = index.insert(entry_of(number));
    } else {
      index.erase(found->second);
      known.erase(found);
    }
    ASSERT_EQ(index.size(), known.size());
  }
  for (const auto& [number, at] : known) EXPECT_EQ(index.at(at).place.segment, number);
}

TEST(TierIndex, AnErasedNumberHasNoEntry) {
  TierIndex index;
  const std::uint32_t first = index.insert(entry_of(1));
  const std::uint32_t second = index.insert(entry_of(2));
  index.erase(first);
  EXPECT_FALSE(index.exists(first));
  EXPECT_TRUE(index.exists(second));
  EXPECT_EQ(index.end(), 2u);
}

// An attacker who knows the secret of the tier can choose hashes.
TEST(TierIndex, HashesWithTheSameUpperBitsOnlyMakeAPageLarger) {
  TierIndex index;
  std::mt19937_64 random(1);
  std::vector<TierKey> keys;
  for (std::uint32_t number = 0; number < 3000; ++number) {
    keys.push_back({.hash = 0xabcdef0123ull << 24 | (random() & 0xffffff), .more = number});
    index.insert({.hash = keys.back().hash, .more = number, .version = number, .place = {}});
  }
  EXPECT_LT(index.memory_bytes(), 64u << 20);
  for (const TierKey& key : keys) EXPECT_EQ(index.at(index.find(key)).version, key.more);
  for (const TierKey& key : keys) index.erase(index.find(key));
  for (const TierKey& key : keys) EXPECT_EQ(index.find(key), kNoEntry);
}

TEST(TierIndex, AnObjectTakesAtMost48BytesAtEverySize) {
  TierIndex index;
  for (std::uint64_t number = 0; number < 400'000; ++number) {
    index.insert(entry_of(number));
    if (number >= 20'000 && number % 1'000 == 0) {
      ASSERT_LE(static_cast<double>(index.memory_bytes()) / index.size(), 48.0) << number;
    }
  }
}

}  // namespace
}  // namespace mc::tier
