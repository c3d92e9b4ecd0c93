// SPDX-License-Identifier: Apache-2.0
//
// Wait-free lookup of a key in the node index, with a pin on the object found.
// Threads: any; each thread uses its own pin slots.
// Owns: nothing. The mapping must outlive the reader.
// Trusts: the agent, within bounds. The reader bounds each number before the number becomes an
//   address, so a torn or old table causes a miss, never a fault. The agent has reserved the entries and
//   keys that the header counts, and the current table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "libmc/base/clock.h"
#include "shm/layout.h"

namespace mc::shm {

struct FoundObject {
  std::uint32_t entry = 0;
  KeyField key{};
  std::uint64_t version = 0;
  std::uint64_t extent = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
};

class IndexReader {
 public:
  IndexReader() = default;
  // Nullopt: not an index file of this layout.
  static std::optional<IndexReader> open(const std::byte* base, std::uint64_t mapped_bytes);

  const IndexHeader& header() const { return *header_; }
  std::uint64_t hash_seed() const { return header_->hash_seed; }
  const Entry& entry(std::uint32_t id) const { return entries_[id]; }

  // From now on find() finds nothing. The caller then runs a full fence and looks at all pins: each
  // object that find() found before has a pin.
  void close() { __atomic_store_n(&closed_, true, __ATOMIC_RELAXED); }

  // The mapped pool, from which find() prefetches.
  void set_pool(const std::byte* pool, std::uint64_t pool_bytes) {
    pool_ = reinterpret_cast<std::uintptr_t>(pool);
    pool_bytes_ = pool_bytes;
  }

  // Finds the live object with this key. hash: hash_key(key, hash_seed()). pin: the slot that
  // receives the pin, or null for no pin; a miss leaves the slot clear. ahead_bytes: number of
  // bytes of the object to prefetch while find() compares entry and key. Finds nothing while the host
  // lacks a lease that the namespace needs.
  bool find(const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
            FoundObject& found, std::uint64_t ahead_bytes = 0) const;
  // Prefetches the cache line that find() reads first.
  void prefetch(std::uint64_t hash) const;
  // Call after prefetch(): prefetches the entry, the key and `bytes` bytes of the object.
  void prefetch_object(std::uint64_t hash, std::uint64_t bytes) const;

  // Copies the extents of a pinned object and returns the number of extents. REQUIRES: records has
  // room for MC_MAX_EXTENTS.
  std::size_t extents(const FoundObject& found, ExtentRecord* records) const;
  // True while the bytes of the version with this sequence are in place: the object is live, or is
  // removed and pinned. False after a read: the bytes may be another object's, because the agent
  // that knew the reader's pin is gone.
  bool holds(std::uint32_t entry, std::uint64_t sequence) const {
    acquire_fence();
    const std::uint64_t version = entries_[entry].version.load_relaxed();
    const EntryState state = state_of(version);
    return sequence_of(version) == sequence &&
           (state == EntryState::kLive || state == EntryState::kLimbo);
  }

 private:
  enum class Probe { kHit, kMiss, kChanged };
  Probe probe_table(const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
                    std::uint64_t generation, FoundObject& found, std::uint64_t ahead_bytes) const;
  Probe probe_entry(const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
                    std::uint32_t id, FoundObject& found) const;
  // True if the agent has reserved this entry, or the key heap up to this byte.
  bool has_entry(std::uint32_t id) const {
    return id < __atomic_load_n(&present_entries_, __ATOMIC_RELAXED) || count_entries() > id;
  }
  bool has_keys(std::uint64_t end) const {
    return end <= __atomic_load_n(&present_key_bytes_, __ATOMIC_RELAXED) || count_keys() >= end;
  }
  std::uint64_t count_entries() const;
  std::uint64_t count_keys() const;
  // False: the host lacks a lease that the namespace needs.
  bool may_read() const {
    const std::uint64_t until_ns = header_->readable_until_ns.load_relaxed();
    return until_ns == kNoLeaseNeeded || now_ns() < until_ns;
  }
  bool closed() const { return __atomic_load_n(&closed_, __ATOMIC_RELAXED); }
  void load_ahead(std::uint64_t slot, const Word16& granule, std::uint64_t bytes) const;
  // True if a table of bucket_count buckets fits at this offset.
  bool fits(std::uint64_t bucket_count, std::uint64_t offset) const {
    return bucket_count != 0 && bucket_count <= table_max_bytes_ / sizeof(Bucket) &&
           offset % kLineBytes == 0 && offset <= mapped_bytes_ - table_max_bytes_;
  }

  const std::byte* base_ = nullptr;
  const IndexHeader* header_ = nullptr;
  const Entry* entries_ = nullptr;
  const std::byte* keys_ = nullptr;
  std::uint64_t table_max_bytes_ =
      0;  // this and the next two: copies, so that the reader reads the header once
  std::uint64_t max_entries_ = 0;
  std::uint64_t max_keys_bytes_ = 0;
  std::uint64_t mapped_bytes_ = 0;
  std::uintptr_t pool_ = 0;
  std::uint64_t pool_bytes_ = 0;
  // Copies of counts of the header that only grow. Atomic, as the next field.
  mutable std::uint64_t present_entries_ = 0;
  mutable std::uint64_t present_key_bytes_ = 0;
  bool closed_ = false;  // atomic; a plain type, because readers are copied before the first use
};

// Home bucket of a hash, and layout of a slot. The agent's index writer uses the same functions.
inline std::uint64_t home_bucket(std::uint64_t hash, std::uint64_t bucket_count) {
  return ((hash & 0xffffffffu) * bucket_count) >> 32;
}
inline constexpr std::uint64_t kSlotTagMask = 0xffff000000000000ull;
inline constexpr std::uint64_t kSlotEntryMask = 0xffffffffull;
// hint: offset of the object's bytes in units of kHintUnitBytes. The slot holds the lower half.
inline std::uint64_t slot_value(std::uint64_t hash, std::uint32_t entry, std::uint32_t hint) {
  return (hash & kSlotTagMask) | (std::uint64_t{hint & 0xffffu} << 32) | (entry + 1u);
}
inline bool slot_is_of(std::uint64_t slot, std::uint64_t hash) {
  return ((slot ^ hash) & kSlotTagMask) == 0 && (slot & kSlotEntryMask) != 0;
}
inline std::uint32_t slot_entry(std::uint64_t slot) {
  return static_cast<std::uint32_t>(slot & kSlotEntryMask) - 1;
}
inline std::uint32_t slot_hint(std::uint64_t slot, std::uint16_t upper_half) {
  return static_cast<std::uint32_t>(slot >> 32 & 0xffffu) | std::uint32_t{upper_half} << 16;
}
// Largest distance of a key from its home bucket. A table that would need more grows.
inline constexpr std::uint64_t kMaxProbes = 64;

}  // namespace mc::shm
