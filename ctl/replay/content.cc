// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/content.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "libmc/base/hash.h"

namespace mc::ctl {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kHeaderWords = 2;
// A chunk is compared as a whole; its bytes are counted only if the chunk differs.
constexpr std::size_t kChunkWords = 512;

// Uses only additions, xors and shifts, so that the compiler vectorises loops over it.
std::uint64_t body_word(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t x = seed + index * kGolden;
  return x ^ (x >> 29);
}

std::uint64_t word_at(const BlockContent& content, std::uint64_t index) {
  if (index == 0) return content.block;
  return index == 1 ? content.seed : body_word(content.seed, index);
}

std::uint64_t count_bytes(std::uint64_t difference) {
  std::uint64_t count = 0;
  for (; difference != 0; difference >>= 8) count += (difference & 0xff) != 0 ? 1 : 0;
  return count;
}

std::uint64_t load(const unsigned char* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, kWord);
  return word;
}

std::uint64_t wrong_in_words(const BlockContent& content, const unsigned char* bytes,
                             std::uint64_t first, std::uint64_t count) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    wrong += count_bytes(load(bytes + i * kWord) ^ word_at(content, first + i));
  }
  return wrong;
}

// REQUIRES: first >= kHeaderWords.
std::uint64_t body_difference(const BlockContent& content, const unsigned char* bytes,
                              std::uint64_t first, std::uint64_t count) {
  std::uint64_t difference = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    difference |= load(bytes + i * kWord) ^ body_word(content.seed, first + i);
  }
  return difference;
}

// The bytes of one word, starting at byte `skip`.
std::uint64_t wrong_in_part(const BlockContent& content, const unsigned char* bytes,
                            std::uint64_t index, std::size_t skip, std::size_t count) {
  unsigned char expected[kWord];
  const std::uint64_t word = word_at(content, index);
  std::memcpy(expected, &word, kWord);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += bytes[i] != expected[skip + i] ? 1 : 0;
  return wrong;
}

}  // namespace

BlockKey::BlockKey(std::string_view name, std::uint64_t block) {
  text_.fill('.');
  char* at = text_.data();
  const auto append = [&at](std::string_view text) {
    at = std::copy(text.begin(), text.end(), at);
  };
  append("trace/");
  append(name.substr(0, kMaxNameBytes));
  append("/block/");
  std::to_chars(at, text_.data() + text_.size(), block);
}

BlockContent::BlockContent(const BlockKey& key, std::uint64_t block_number)
    : block(block_number), seed(hash_key(key.text().data(), key.text().size(), kGolden)) {}

void BlockContent::fill(void* bytes, std::size_t size) const {
  auto* out = static_cast<unsigned char*>(bytes);
  const std::size_t words = size / kWord;
  for (std::size_t i = 0; i < std::min(words, kHeaderWords); ++i) {
    const std::uint64_t word = word_at(*this, i);
    std::memcpy(out + i * kWord, &word, kWord);
  }
  for (std::size_t i = kHeaderWords; i < words; ++i) {
    const std::uint64_t word = body_word(seed, i);
    std::memcpy(out + i * kWord, &word, kWord);
  }
  const std::uint64_t last = word_at(*this, words);
  std::memcpy(out + words * kWord, &last, size % kWord);
}

std::uint64_t BlockContent::wrong_bytes(const void* bytes, std::size_t size,
                                        std::uint64_t offset) const {
  const auto* in = static_cast<const unsigned char*>(bytes);
  std::uint64_t wrong = 0;
  std::uint64_t index = offset / kWord;
  if (const std::size_t skip = offset % kWord; skip != 0) {
    const std::size_t count = std::min(size, kWord - skip);
    wrong += wrong_in_part(*this, in, index++, skip, count);
    in += count;
    size -= count;
  }
  std::uint64_t words = size / kWord;
  while (words > 0) {
    const bool header = index < kHeaderWords;
    const std::uint64_t count =
        std::min<std::uint64_t>(words, header ? kHeaderWords - index : kChunkWords);
    if (header || body_difference(*this, in, index, count) != 0) {
      wrong += wrong_in_words(*this, in, index, count);
    }
    in += count * kWord;
    index += count;
    words -= count;
  }
  return wrong + wrong_in_part(*this, in, index, 0, size % kWord);
}

}  // namespace mc::ctl
