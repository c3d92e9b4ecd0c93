// SPDX-License-Identifier: Apache-2.0
#include "shm/index_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "shm/pins.h"

namespace mc::shm {

namespace {
constexpr int kMaxRounds = 4096;

// memcmp() of two keys without the call and the branches: most keys are a few words long.
inline bool same_bytes(const std::byte* a, const std::byte* b, std::size_t size) {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  const auto words = [](const std::byte* at) {
    Words value;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  if (size < sizeof(Words)) return std::memcmp(a, b, size) == 0;
  const std::size_t last = size - sizeof(Words);
  Words difference = words(a + last) ^ words(b + last);
  for (std::size_t i = 0; i < last; i += sizeof(Words)) difference |= words(a + i) ^ words(b + i);
  return (difference[0] | difference[1]) == 0;
}
}  // namespace

std::optional<IndexReader> IndexReader::open(const std::byte* base, std::uint64_t mapped_bytes) {
  if (mapped_bytes < kPageBytes) return std::nullopt;
  const auto* header = reinterpret_cast<const IndexHeader*>(base);
  if (!check_header(header->file, FileKind::kIndex, mapped_bytes)) return std::nullopt;
  const auto fits = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset % kLineBytes == 0 && offset <= mapped_bytes && bytes <= mapped_bytes - offset;
  };
  if (!fits(header->table_offset[0], header->table_max_bytes) ||
      !fits(header->table_offset[1], header->table_max_bytes) ||
      header->max_entries >= 0xffffffffu ||
      !fits(header->entries_offset, header->max_entries * sizeof(Entry)) ||
      header->entries_offset % alignof(Entry) != 0 ||
      !fits(header->keys_offset, header->max_keys_bytes)) {
    return std::nullopt;
  }
  IndexReader reader;
  reader.base_ = base;
  reader.header_ = header;
  reader.entries_ = reinterpret_cast<const Entry*>(base + header->entries_offset);
  reader.keys_ = base + header->keys_offset;
  reader.table_max_bytes_ = header->table_max_bytes;
  reader.max_entries_ = header->max_entries;
  reader.max_keys_bytes_ = header->max_keys_bytes;
  reader.mapped_bytes_ = mapped_bytes;
  return reader;
}

[[gnu::noinline]] std::uint64_t IndexReader::count_entries() const {
  acquire_fence();
  const std::uint64_t count = std::min(header_->entry_count.load_relaxed(), max_entries_);
  __atomic_store_n(&present_entries_, count, __ATOMIC_RELAXED);
  return count;
}

[[gnu::noinline]] std::uint64_t IndexReader::count_keys() const {
  acquire_fence();
  const std::uint64_t bytes =
      std::min(header_->keys_reserved_bytes.load_relaxed(), max_keys_bytes_);
  __atomic_store_n(&present_key_bytes_, bytes, __ATOMIC_RELAXED);
  return bytes;
}

[[gnu::always_inline]] inline IndexReader::Probe IndexReader::probe_entry(
    const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin, std::uint32_t id,
    FoundObject& found) const {
  const Entry& entry = entries_[id];
  found.version = entry.version.load_acquire();
  // The object left or was replaced after the slot was read: look again.
  if (state_of(found.version) != EntryState::kLive) return Probe::kChanged;
  if (pin != nullptr) set_pin(*pin, pin_value(id, found.version));
  found.entry = id;
  found.extent = entry.extent.load_relaxed();
  found.length = entry.length.load_relaxed();
  found.checksum = entry.checksum.load_relaxed();
  found.key = std::bit_cast<KeyField>(entry.key.load_relaxed());
  const std::byte* own_key = reinterpret_cast<const std::byte*>(entry.short_key);
  bool same = entry.hash.load_relaxed() == hash && found.key.key_bytes == key_bytes;
  if (key_bytes > kShortKeyBytes) {
    const std::uint64_t at = std::uint64_t{found.key.record} * kRecordUnitBytes;
    same = same && has_keys(at + key_bytes);
    own_key = keys_ + at;
  }
  same = same && same_bytes(own_key, static_cast<const std::byte*>(key), key_bytes);
  acquire_fence();
  const bool unchanged = entry.version.load_relaxed() == found.version;
  if (same && unchanged && !closed()) return Probe::kHit;
  if (pin != nullptr) clear_pin(*pin);
  return unchanged ? Probe::kMiss : Probe::kChanged;
}

// Prefetches an object's bytes at the place that a slot names. The object is not pinned yet, and
// the place may belong to another object. A useless prefetch costs time and has no other effect.
[[gnu::always_inline]] inline void IndexReader::load_ahead(std::uint64_t slot,
                                                           const Word16& granule,
                                                           std::uint64_t bytes) const {
  const std::uint64_t at = slot_hint(slot, granule.load_relaxed()) * kHintUnitBytes;
  if (at >= pool_bytes_) return;
    // A macro, because GCC removes a function that only prefetches.
#define MC_LOAD_LINE(line) __builtin_prefetch(reinterpret_cast<const void*>(line))
  std::uintptr_t line = pool_ + at;
  for (; bytes >= 8 * kLineBytes; bytes -= 8 * kLineBytes, line += 8 * kLineBytes) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) MC_LOAD_LINE(line + i * kLineBytes);
  }
  for (const std::uintptr_t end = line + bytes; line < end; line += kLineBytes) MC_LOAD_LINE(line);
#undef MC_LOAD_LINE
}

[[gnu::always_inline]] inline IndexReader::Probe IndexReader::probe_table(
    const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
    std::uint64_t generation, FoundObject& found, std::uint64_t ahead_bytes) const {
  const TableDescriptor& table = header_->tables[generation & 1];
  const std::uint64_t count = table.bucket_count.load_relaxed();
  const std::uint64_t offset = table.offset_bytes.load_relaxed();
  if (!fits(count, offset)) return Probe::kMiss;
  const auto* buckets = reinterpret_cast<const Bucket*>(base_ + offset);
  std::uint64_t at = home_bucket(hash, count);
  for (std::uint64_t probes = 0; probes < kMaxProbes; ++probes) {
    const Bucket& bucket = buckets[at];
    static_assert(kSlotTagMask == 0xffff000000000000);
    unsigned matches = same_upper_quarter(bucket.slots, hash);
    for (; matches != 0; matches &= matches - 1) {
      const int number = std::countr_zero(matches);
      const std::uint64_t slot = bucket.slots[number].load_acquire();
      if (((slot ^ hash) & kSlotTagMask) != 0) return Probe::kChanged;
      if ((slot & kSlotEntryMask) == 0) continue;  // an empty slot, and a hash with tag 0
      const std::uint32_t id = slot_entry(slot);
      if (!has_entry(id)) continue;
      __builtin_prefetch(&entries_[id]);
      __builtin_prefetch(entries_[id].short_key);
      if (ahead_bytes != 0) load_ahead(slot, bucket.granules[number], ahead_bytes);
      const Probe result = probe_entry(key, key_bytes, hash, pin, id, found);
      if (result != Probe::kMiss) return result;
      // The entry holds another key. Either two keys have the same tag, or the agent reused the
      // entry after the slot was read. In the second case the slot has changed: look again.
      if (bucket.slots[number].load_relaxed() != slot) return Probe::kChanged;
    }
    if (bucket.passed.load_relaxed() == 0) return Probe::kMiss;
    at = at + 1 == count ? 0 : at + 1;
  }
  return Probe::kMiss;
}

bool IndexReader::find(const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
                       FoundObject& found, std::uint64_t ahead_bytes) const {
  // A further round needs a change by the agent. The limit protects against a damaged table.
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::uint64_t generation = header_->generation.load_acquire();
    const Probe result = probe_table(key, key_bytes, hash, pin, generation, found, ahead_bytes);
    if (result == Probe::kHit) {
      if (may_read()) [[likely]]
        return true;
      if (pin != nullptr) clear_pin(*pin);
      return false;
    }
    acquire_fence();
    // A miss counts only if the table stayed current.
    if (result == Probe::kMiss && header_->generation.load_relaxed() == generation) return false;
  }
  return false;
}

void IndexReader::prefetch(std::uint64_t hash) const {
  const TableDescriptor& table = header_->tables[header_->generation.load_relaxed() & 1];
  const std::uint64_t at = home_bucket(hash, table.bucket_count.load_relaxed()) * sizeof(Bucket);
  // An integer, not yet a pointer: a torn value prefetches nothing useful and forms no wild
  // pointer.
  const std::uintptr_t line =
      reinterpret_cast<std::uintptr_t>(base_) + table.offset_bytes.load_relaxed() + at;
  __builtin_prefetch(reinterpret_cast<const void*>(line));
}

void IndexReader::prefetch_object(std::uint64_t hash, std::uint64_t bytes) const {
  const TableDescriptor& table = header_->tables[header_->generation.load_relaxed() & 1];
  const std::uint64_t count = table.bucket_count.load_relaxed();
  const std::uint64_t offset = table.offset_bytes.load_relaxed();
  if (!fits(count, offset)) return;
  const Bucket& bucket = reinterpret_cast<const Bucket*>(base_ + offset)[home_bucket(hash, count)];
  const unsigned matches = same_upper_quarter(bucket.slots, hash);
  if (matches == 0) return;
  const int number = std::countr_zero(matches);
  const std::uint64_t slot = bucket.slots[number].load_relaxed();
  const std::uint32_t id = slot_entry(slot);
  if (id >= max_entries_) return;
  __builtin_prefetch(&entries_[id]);
  __builtin_prefetch(entries_[id].short_key);
  load_ahead(slot, bucket.granules[number], bytes);
}

std::size_t IndexReader::extents(const FoundObject& found, ExtentRecord* records) const {
  if (found.key.extent_count <= 1) {
    records[0] = {found.extent, found.length};
    return 1;
  }
  const std::size_t count = found.key.extent_count;
  if (count > MC_MAX_EXTENTS || found.extent > max_keys_bytes_ / kRecordUnitBytes) return 0;
  const std::uint64_t at = found.extent * kRecordUnitBytes;
  if (!has_keys(at + count * sizeof(ExtentRecord))) return 0;
  std::memcpy(records, keys_ + at, count * sizeof(ExtentRecord));
  std::uint64_t left = found.length;
  for (std::size_t i = 0; i < count; ++i) {
    if (records[i].length_bytes > left) records[i].length_bytes = left;
    left -= records[i].length_bytes;
  }
  return left == 0 ? count : 0;
}

}  // namespace mc::shm
