// SPDX-License-Identifier: Apache-2.0
//
// The objects on the disks, in memory: an entry of 40 bytes for each object, and a table that finds
//   the entry by its key. Together an object takes at most 48 bytes.
//
//   directory  2^n references, chosen by the uppermost bits of the hash
//   page       512 to 1000 slots; a full page grows by a quarter, and the largest page splits. Hashes
//              of an attacker, who must know the secret of the tier, only make a page larger.
//   slot       31 tag: 4 bits of the hash 28 │ 27 entry number + 1  0
//   entries    in blocks of 512, which never move
//
//   Each change touches one page: no insertion waits for a table of all objects to be filled anew.
// Threads: the agent's loop.
// Owns: the memory of entries and pages.
// Trusts: its caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "agent/tier/layout/layout.h"
#include "mc/limits.h"

namespace mc::tier {

inline constexpr std::uint32_t kNoEntry = UINT32_MAX;
// Objects that a tier can hold.
inline constexpr std::uint32_t kMaxEntries = (1u << 28) - 2;

struct TierEntry {
  std::uint64_t hash = 0;  // TierKey
  std::uint64_t more = 0;
  std::uint64_t version = 0;  // of the object, for the caller
  Place place;
  std::uint32_t length = 0;  // bytes of the object
  std::uint32_t key_bytes : 11 = 0;
  std::uint32_t uses : 5 = 0;        // reads since the record was written, at most kMostUses
  std::uint32_t flags : 2 = 0;       // kEntryDamaged, kEntryRefused
  std::uint32_t marks : 6 = 0;       // for the caller
  std::uint32_t name_space : 8 = 0;  // Catalog::namespace_of()

  TierKey key() const { return {.hash = hash, .more = more}; }
  std::uint64_t record_bytes() const {
    const RecordHeader shape{.key_bytes = static_cast<std::uint16_t>(key_bytes), .length = length};
    return shape.record_bytes();
  }
};
static_assert(sizeof(TierEntry) == 40);
static_assert(kMarkBits == 6 && MC_MAX_KEY_BYTES < 1u << 11);
inline constexpr std::uint32_t kMostUses = 31;

// TierEntry::flags. A read found damaged bytes. The object cannot be read, and the record stays known
// until its segment is cleaned: a removal must still be written.
inline constexpr std::uint32_t kEntryDamaged = 1;
// The disk has refused the last read. Reads go on trying, and a put writes the object anew.
inline constexpr std::uint32_t kEntryRefused = 2;

class TierIndex {
 public:
  TierIndex();

  // The number of the entry, or kNoEntry. The number stays valid until the entry is erased.
  std::uint32_t find(const TierKey& key) const;
  // REQUIRES: no entry has this key. Returns kNoEntry if the index has kMaxEntries.
  std::uint32_t insert(const TierEntry& entry);
  // REQUIRES: the entry exists.
  void erase(std::uint32_t number);
  TierEntry& at(std::uint32_t number) {
    return blocks_[number / kBlockEntries][number % kBlockEntries];
  }
  const TierEntry& at(std::uint32_t number) const {
    return blocks_[number / kBlockEntries][number % kBlockEntries];
  }

  // For a walk over all entries: numbers are below end(), and a number may have no entry.
  std::uint32_t end() const { return next_; }
  bool exists(std::uint32_t number) const { return at(number).place.segment != kNoEntry; }

  std::uint32_t size() const { return size_; }
  // Frees a part of the memory, of an index that is not used any more. Returns false when none is left.
  bool free_some();
  std::uint64_t memory_bytes() const {
    return blocks_.size() * kBlockEntries * sizeof(TierEntry) + page_bytes_ +
           pages_.size() * sizeof(void*);
  }

 private:
  static constexpr std::uint32_t kBlockEntries = 512;
  static constexpr std::uint32_t kSmallestPage = 512;
  static constexpr std::uint32_t kLargestPage = 1000;
  static constexpr unsigned kMostBits = 22;  // kMaxEntries have pages of 18 or 19 bits
  struct Page {
    std::unique_ptr<std::uint32_t[]> slots;
    std::uint32_t slot_count = 0;
    std::uint32_t used = 0;
    unsigned bits = 0;  // uppermost bits of the hash that all entries of the page have in common
  };

  static bool is_full(const Page& page) { return page.used >= page.slot_count / 8 * 7; }
  static std::uint32_t home(const Page& page, std::uint64_t hash) {
    // The uppermost bits choose the page, so the lowest 32 choose the slot.
    return static_cast<std::uint32_t>(((hash & UINT32_MAX) * page.slot_count) >> 32);
  }
  static std::uint32_t slot_word(std::uint64_t hash, std::uint32_t number) {
    return static_cast<std::uint32_t>((hash >> 32 & 0xf) << 28) | (number + 1);
  }
  static std::uint32_t number_in(std::uint32_t slot) { return (slot & 0x0fffffff) - 1; }

  Page& page_of(std::uint64_t hash) const {
    return *pages_[bits_ == 0 ? 0 : static_cast<std::size_t>(hash >> (64 - bits_))];
  }
  static std::unique_ptr<Page> make_page(std::uint32_t slot_count, unsigned bits);
  static std::uint64_t bytes_of(const Page& page) {
    return sizeof(Page) + page.slot_count * sizeof(std::uint32_t);
  }
  static void place_in(Page& page, std::uint64_t hash, std::uint32_t number);
  void grow(Page& page);
  void split(Page& page);
  std::uint32_t take_number();

  std::vector<std::unique_ptr<TierEntry[]>> blocks_;
  std::uint32_t free_ = kNoEntry;  // an erased entry, whose hash is the number of the next one
  std::uint32_t next_ = 0;         // entries ever used
  std::vector<std::unique_ptr<Page>> owned_;
  std::vector<Page*> pages_;  // the directory
  unsigned bits_ = 0;
  std::uint32_t size_ = 0;
  std::uint64_t page_bytes_ = 0;
};

}  // namespace mc::tier
