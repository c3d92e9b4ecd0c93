// SPDX-License-Identifier: Apache-2.0
#include "shm/index_reader.h"

#include <bit>
#include <cstring>

#include "shm/pins.h"

namespace mc::shm {

namespace {
constexpr int kMaxRounds = 4096;
}

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

bool IndexReader::find(const void* key, std::size_t key_bytes, std::uint64_t hash, Word64* pin,
                       FoundObject& found) const {
  // Each further round takes a change meanwhile; a damaged table must not keep the caller for ever.
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::uint64_t generation = header_->generation.load_acquire();
    const Probe result = probe_table(key, key_bytes, hash, pin, generation, found);
    if (result == Probe::kHit) return true;
    acquire_fence();
    // A miss counts only in a table that was current all the time.
    if (result == Probe::kMiss && header_->generation.load_relaxed() == generation) return false;
  }
  return false;
}

IndexReader::Probe IndexReader::probe_table(const void* key, std::size_t key_bytes,
                                            std::uint64_t hash, Word64* pin,
                                            std::uint64_t generation, FoundObject& found) const {
  const TableDescriptor& table = header_->tables[generation & 1];
  const std::uint64_t count = table.bucket_count.load_relaxed();
  const std::uint64_t offset = table.offset_bytes.load_relaxed();
  if (count == 0 || count > table_max_bytes_ / sizeof(Bucket) || offset % kLineBytes != 0 ||
      offset > mapped_bytes_ - table_max_bytes_) {
    return Probe::kMiss;
  }
  const auto* buckets = reinterpret_cast<const Bucket*>(base_ + offset);
  const std::uint64_t tag = hash & 0xffffffff00000000ull;
  std::uint64_t at = home_bucket(hash, count);
  for (std::uint64_t probes = 0; probes < kMaxProbes; ++probes) {
    const Bucket& bucket = buckets[at];
    // Seven loads and compares without a branch: which slot matches cannot be predicted.
    unsigned matches = 0;
    std::uint64_t slots[kBucketSlots];
#pragma GCC unroll 7
    for (std::size_t i = 0; i < kBucketSlots; ++i) {
      slots[i] = bucket.slots[i].load_acquire();
      const bool match = (slots[i] & 0xffffffff00000000ull) == tag && (slots[i] & 0xffffffffu) != 0;
      matches |= static_cast<unsigned>(match) << i;
    }
    for (; matches != 0; matches &= matches - 1) {
      const std::uint64_t slot = slots[std::countr_zero(matches)];
      const auto id = static_cast<std::uint32_t>(slot & 0xffffffffu) - 1;
      const Probe result = probe_entry(key, key_bytes, hash, pin, id, found);
      if (result != Probe::kMiss) return result;
    }
    if (bucket.passed.load_relaxed() == 0) return Probe::kMiss;
    at = at + 1 == count ? 0 : at + 1;
  }
  return Probe::kMiss;
}

IndexReader::Probe IndexReader::probe_entry(const void* key, std::size_t key_bytes,
                                            std::uint64_t hash, Word64* pin, std::uint32_t id,
                                            FoundObject& found) const {
  if (id >= max_entries_) return Probe::kMiss;
  const Entry& entry = entries_[id];
  found.version = entry.version.load_acquire();
  // The slot named this entry, but its object has just left or been replaced: look again.
  if (state_of(found.version) != EntryState::kLive) return Probe::kChanged;
  if (pin != nullptr) set_pin(*pin, pin_value(id, found.version));
  found.entry = id;
  found.extent = entry.extent.load_relaxed();
  found.length = entry.length.load_relaxed();
  found.checksum = entry.checksum.load_relaxed();
  found.key = std::bit_cast<KeyField>(entry.key.load_relaxed());
  const std::uint64_t at = std::uint64_t{found.key.record} * kRecordUnitBytes;
  const std::uint64_t entry_hash = entry.hash.load_relaxed();
  const bool same = entry_hash == hash && found.key.key_bytes == key_bytes &&
                    at + key_bytes <= max_keys_bytes_ &&
                    std::memcmp(keys_ + at, key, key_bytes) == 0;
  acquire_fence();
  const bool unchanged = entry.version.load_relaxed() == found.version;
  if (same && unchanged) return Probe::kHit;
  if (pin != nullptr) clear_pin(*pin);
  // An object with another tag is not the one the slot named: since the slot was read the key has
  // been replaced, and its old entry reused. The key may be there all the same.
  const bool reused = ((entry_hash ^ hash) >> 32) != 0;
  return unchanged && !reused ? Probe::kMiss : Probe::kChanged;
}

void IndexReader::prefetch(std::uint64_t hash) const {
  const TableDescriptor& table = header_->tables[header_->generation.load_relaxed() & 1];
  const std::uint64_t at = home_bucket(hash, table.bucket_count.load_relaxed()) * sizeof(Bucket);
  // A number, not yet a pointer: a torn one loads nothing, and points nowhere either.
  const std::uintptr_t line =
      reinterpret_cast<std::uintptr_t>(base_) + table.offset_bytes.load_relaxed() + at;
  __builtin_prefetch(reinterpret_cast<const void*>(line));
}

std::size_t IndexReader::extents(const FoundObject& found, ExtentRecord* records) const {
  if (found.key.extent_count <= 1) {
    records[0] = {found.extent, found.length};
    return 1;
  }
  const std::size_t count = found.key.extent_count;
  if (count > MC_MAX_EXTENTS || found.extent > max_keys_bytes_ / kRecordUnitBytes) return 0;
  const std::uint64_t at = found.extent * kRecordUnitBytes;
  if (at + count * sizeof(ExtentRecord) > max_keys_bytes_) return 0;
  std::memcpy(records, keys_ + at, count * sizeof(ExtentRecord));
  std::uint64_t left = found.length;
  for (std::size_t i = 0; i < count; ++i) {
    if (records[i].length_bytes > left) records[i].length_bytes = left;
    left -= records[i].length_bytes;
  }
  return left == 0 ? count : 0;
}

}  // namespace mc::shm
