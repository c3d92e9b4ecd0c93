// SPDX-License-Identifier: Apache-2.0
//
// One (key, holder) pair in 32 bytes, and a bucket of fifteen such slots.
//
//   slot    0        8        16       24       29    30     32
//           │ hash.hi│ hash.lo│ version│ bytes-1│attrs│session│
//   bucket  0                  30      32                          512
//           │ 15 tags of 2 bytes│passed │ 15 slots                  │
//
// A tag is 16 bits of the hash, or 0 for an empty slot. A compare of 32 bytes finds the
// candidates of a bucket, and a hit costs two cache lines. `passed` counts the slots that belong in
// this bucket or an earlier bucket and were stored further on. A search ends at the first bucket
// with passed == 0, and erasing leaves no mark.
// Threads: the directory's. The layout is private to one process; slots are neither sent nor
//   stored.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "metadata/directory/attributes.h"
#include "metadata/directory/key_hash.h"

namespace mc::metadata {

using SessionId = std::uint16_t;  // see sessions.h

struct Slot {
  static constexpr std::uint64_t kBytesBits = 40;

  KeyHash hash;
  std::uint64_t version = 0;
  std::uint64_t packed = 0;  // bytes - 1: 40 bits, attributes: 8, session: 16

  // REQUIRES: 1 <= bytes <= 2^40.
  static constexpr Slot make(KeyHash hash, std::uint64_t version, std::uint64_t bytes,
                             std::uint8_t attributes, SessionId session) {
    return {hash, version,
            (bytes - 1) | static_cast<std::uint64_t>(attributes) << kBytesBits |
                static_cast<std::uint64_t>(session) << (kBytesBits + 8)};
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return (packed & ((std::uint64_t{1} << kBytesBits) - 1)) + 1;
  }
  [[nodiscard]] std::uint8_t attributes() const {
    return static_cast<std::uint8_t>(packed >> kBytesBits);
  }
  [[nodiscard]] SessionId session() const {
    return static_cast<SessionId>(packed >> (kBytesBits + 8));
  }
};
static_assert(sizeof(Slot) == 32);

// The low bits of hi, which are independent of the partition (top bits of hi) and of the bucket
// (lo).
constexpr std::uint16_t tag_of(KeyHash hash) {
  const auto tag = static_cast<std::uint16_t>(hash.hi);
  return tag == 0 ? std::uint16_t{1} : tag;
}

struct alignas(512) Bucket {
  static constexpr unsigned kSlots = 15;
  static constexpr unsigned kAll = (1u << kSlots) - 1;

  std::array<std::uint16_t, kSlots> tags;
  std::uint16_t passed;
  std::array<Slot, kSlots> slots;

  // Bit i: slot i has this tag.
  [[nodiscard]] unsigned match(std::uint16_t tag) const {
#if defined(__SSE2__)
    const auto* words = reinterpret_cast<const __m128i*>(this);
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(tag));
    const __m128i low = _mm_cmpeq_epi16(_mm_load_si128(words), wanted);
    const __m128i high = _mm_cmpeq_epi16(_mm_load_si128(words + 1), wanted);
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high))) & kAll;
#else
    unsigned found = 0;
    for (unsigned i = 0; i < kSlots; ++i) found |= static_cast<unsigned>(tags[i] == tag) << i;
    return found;
#endif
  }
  [[nodiscard]] unsigned empty() const { return match(0); }
  [[nodiscard]] unsigned used() const { return empty() ^ kAll; }
};
static_assert(sizeof(Bucket) == 512);
static_assert(offsetof(Bucket, passed) == 30 && offsetof(Bucket, slots) == 32);

}  // namespace mc::metadata
