// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/content.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace mc::ctl {
namespace {

std::vector<unsigned char> block_bytes(std::uint64_t block, std::size_t size) {
  std::vector<unsigned char> bytes(size);
  BlockContent(BlockKey("test", block), block).fill(bytes.data(), bytes.size());
  return bytes;
}

BlockContent content_of(std::uint64_t block) { return {BlockKey("test", block), block}; }

TEST(ReplayContent, FilledContentIsRight) {
  for (const std::size_t size : {1u, 7u, 8u, 9u, 16u, 23u, 64u, 4096u, 4099u, 65536u}) {
    const auto bytes = block_bytes(7, size);
    EXPECT_EQ(content_of(7).wrong_bytes(bytes.data(), bytes.size()), 0u) << size;
  }
}

TEST(ReplayContent, AFlippedBitIsFoundWhereverItIs) {
  auto bytes = block_bytes(7, 5003);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= 0x10;
    EXPECT_EQ(content_of(7).wrong_bytes(bytes.data(), bytes.size()), 1u) << at;
    bytes[at] ^= 0x10;
  }
}

TEST(ReplayContent, AnotherBlockIsFoundToBeWrongNearlyEverywhere) {
  const auto bytes = block_bytes(8, 16384);
  EXPECT_GT(content_of(7).wrong_bytes(bytes.data(), bytes.size()), 16000u);
}

TEST(ReplayContent, AnotherBlockIsFoundEvenWhenOnlyItsFirstWordIsRead) {
  const auto bytes = block_bytes(8, 8);
  EXPECT_GT(content_of(7).wrong_bytes(bytes.data(), bytes.size()), 0u);
}

TEST(ReplayContent, ABlockTornBetweenTwoPutsIsFound) {
  const auto first = block_bytes(7, 16384);
  auto torn = block_bytes(8, 16384);
  std::memcpy(torn.data(), first.data(), torn.size() - 64);
  const std::uint64_t wrong = content_of(7).wrong_bytes(torn.data(), torn.size());
  EXPECT_GT(wrong, 0u);
  EXPECT_LE(wrong, 64u);
}

TEST(ReplayContent, ABlockShiftedByAWordIsFound) {
  const auto bytes = block_bytes(7, 8192 + 8);
  EXPECT_GT(content_of(7).wrong_bytes(bytes.data() + 8, 8192), 8000u);
}

TEST(ReplayContent, PiecesAtAnyOffsetAreCheckedAgainstTheirPlace) {
  auto bytes = block_bytes(7, 1024);
  for (std::size_t offset = 0; offset < 40; ++offset) {
    for (std::size_t size = 0; size < 40; ++size) {
      EXPECT_EQ(content_of(7).wrong_bytes(bytes.data() + offset, size, offset), 0u);
    }
  }
  bytes[13] ^= 1;
  EXPECT_EQ(content_of(7).wrong_bytes(bytes.data() + 11, 100, 11), 1u);
}

TEST(ReplayContent, KeysAreLikeAnEnginesAndDiffer) {
  const BlockKey key("engine", 12);
  EXPECT_EQ(key.slice().size, 64u);
  EXPECT_EQ(key.text().substr(0, 21), "trace/engine/block/12");
  EXPECT_NE(BlockKey("engine", 1).text(), BlockKey("engine", 10).text());
  EXPECT_NE(BlockKey("a", 1).text(), BlockKey("b", 1).text());
}

TEST(ReplayContent, ALongNameAndALargeNumberFitTheKey) {
  const BlockKey key(std::string(200, 'n'), ~std::uint64_t{0});
  EXPECT_NE(key.text().find("/block/18446744073709551615"), std::string_view::npos);
}

}  // namespace
}  // namespace mc::ctl
