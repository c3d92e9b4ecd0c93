// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/index/object_index.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "agent/pool/extents/extent_allocator.h"
#include "libmc/base/hash.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kEntryStep = 4096;
constexpr std::size_t kEntriesAhead = 8;
constexpr std::uint64_t kHugeStepBytes = 16ull << 20;
constexpr std::size_t kEntriesPart = 3, kKeysPart = 4;   // of the memory file
constexpr std::uint64_t kMaxKeyHeapBytes = 64ull << 30;  // reach of a 32-bit record number

std::uint64_t page_align(std::uint64_t value) {
  return (value + shm::kPageBytes - 1) / shm::kPageBytes * shm::kPageBytes;
}

// Regions of the file begin at multiples of a huge page.
std::uint64_t huge_align(std::uint64_t value) {
  return (value + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// The places of the parts in a file for this many entries, one after the other.
struct Parts {
  explicit Parts(std::uint64_t max_entries)
      : table_bytes(huge_align((max_entries / 4 + 64) * sizeof(shm::Bucket))),
        entry_bytes(huge_align(max_entries * sizeof(shm::Entry))),
        key_bytes(std::min(kMaxKeyHeapBytes,
                           page_align(max_entries * 2 * MC_MAX_KEY_BYTES) + (16u << 20))) {}
  std::uint64_t table(unsigned number) const { return kHugePageBytes + number * table_bytes; }
  std::uint64_t entries() const { return table(2); }
  std::uint64_t keys() const { return entries() + entry_bytes; }
  std::uint64_t size() const { return keys() + key_bytes; }
  // The parts of the memory file: header, tables, entries, keys.
  std::array<std::uint64_t, 5> bytes() const {
    return {kHugePageBytes, table_bytes, table_bytes, entry_bytes, key_bytes};
  }

  const std::uint64_t table_bytes, entry_bytes, key_bytes;
};

// True if the header names the parts that create() made, so that no part overlaps another.
bool parts_are_right(const shm::IndexHeader& header, std::uint64_t file_bytes) {
  const Parts parts(header.max_entries);
  return header.file.size_bytes == file_bytes && file_bytes == parts.size() &&
         header.table_offset[0] == parts.table(0) && header.table_offset[1] == parts.table(1) &&
         header.table_max_bytes == parts.table_bytes && header.entries_offset == parts.entries() &&
         header.keys_offset == parts.keys() && header.max_keys_bytes == parts.key_bytes;
}

}  // namespace

Result<std::unique_ptr<ObjectIndex>> ObjectIndex::create(std::uint64_t max_objects,
                                                         std::uint64_t node_id,
                                                         std::uint64_t incarnation) {
  const std::uint64_t max_entries = std::min<std::uint64_t>(max_objects + 4096, 0xfffffffe);
  const Parts parts(max_entries);
  const std::uint64_t size = parts.size();

  auto index = std::unique_ptr<ObjectIndex>(new ObjectIndex);
  auto file = MemoryFile::create_growing("mc-index", parts.bytes());
  if (!file) return fail(file.error());
  index->file_ = std::move(*file);
  if (Status status = index->file_.reserve(0, shm::kPageBytes); !status.ok()) return fail(status);
  auto mapping = Mapping::map_all(index->file_, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  index->mapping_ = std::move(*mapping);

  auto* header = reinterpret_cast<shm::IndexHeader*>(index->mapping_.data());
  header->file = shm::make_header(shm::FileKind::kIndex, size, node_id, incarnation);
  if (::getrandom(&header->hash_seed, sizeof header->hash_seed, 0) < 0) header->hash_seed = node_id;
  header->table_offset[0] = parts.table(0);
  header->table_offset[1] = parts.table(1);
  header->table_max_bytes = parts.table_bytes;
  header->entries_offset = parts.entries();
  header->max_entries = max_entries;
  header->keys_offset = parts.keys();
  header->max_keys_bytes = parts.key_bytes;
  header->next_sequence.store_relaxed(1);
  index->attach();
  if (Status status = index->table_->reset(0); !status.ok()) return fail(status);
  index->table_->publish_reset();
  return index;
}

std::vector<std::uint64_t> ObjectIndex::part_bytes(const shm::IndexHeader& header) {
  const auto bytes = Parts(header.max_entries).bytes();
  return {bytes.begin(), bytes.end()};
}

Result<std::unique_ptr<ObjectIndex>> ObjectIndex::adopt(MemoryFile file) {
  auto index = std::unique_ptr<ObjectIndex>(new ObjectIndex);
  index->file_ = std::move(file);
  auto mapping = Mapping::map_all(index->file_, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  index->mapping_ = std::move(*mapping);
  const auto reader = shm::IndexReader::open(index->mapping_.data(), index->mapping_.size_bytes());
  if (!reader || reader->header().entry_count.load_relaxed() > reader->header().max_entries ||
      !parts_are_right(reader->header(), index->mapping_.size_bytes())) {
    return fail(MC_CORRUPT, "the kept index file has a damaged header or another layout version");
  }
  index->attach();
  // The previous agent reserved the entries up to entry_count; a missing page must not raise
  // SIGBUS later. To reserve pages that exist takes time for each page.
  const std::uint64_t count =
      std::min((index->entry_count() + kEntryStep - 1) / kEntryStep * kEntryStep,
               index->header_->max_entries);
  const std::uint64_t entry_bytes = count * sizeof(shm::Entry);
  const std::uint64_t key_bytes = index->keys_->reserved_bytes();
  const MemoryFile& kept = index->file_;
  const bool missing =
      kept.resident_bytes(kEntriesPart) < entry_bytes || kept.resident_bytes(kKeysPart) < key_bytes;
  if (missing) {
    Status status = kept.reserve(index->header_->entries_offset, entry_bytes);
    if (status.ok()) status = kept.reserve(index->header_->keys_offset, key_bytes);
    if (!status.ok()) return fail(status);
  }
  index->entries_reserved_ = count;
  return index;
}

void ObjectIndex::attach() {
  header_ = reinterpret_cast<shm::IndexHeader*>(mapping_.data());
  entries_ = reinterpret_cast<shm::Entry*>(mapping_.data() + header_->entries_offset);
  key_bytes_ = mapping_.data() + header_->keys_offset;
  table_ = std::make_unique<BucketTable>(mapping_.data(), &file_);
  keys_ = std::make_unique<KeyHeap>(
      [this](std::uint64_t first, std::uint64_t bytes) {
        if (first > header_->max_keys_bytes || bytes > header_->max_keys_bytes - first)
          return false;
        if (!file_.reserve(header_->keys_offset + first, bytes).ok()) return false;
        header_->keys_reserved_bytes.store_relaxed(first + bytes);
        return true;
      },
      std::min(header_->keys_reserved_bytes.load_relaxed(), header_->max_keys_bytes));
}

[[gnu::hot]] OptionalId ObjectIndex::acquire_entry() {
  if (!free_entries_.empty()) {
    const std::uint32_t id = free_entries_.back();
    free_entries_.pop_back();
    // The next entries have not been used for long; prefetch now, since the put writes to
    // the entry.
    if (free_entries_.size() >= kEntriesAhead) {
      __builtin_prefetch(&entries_[free_entries_[free_entries_.size() - kEntriesAhead]], 1);
    }
    return id;
  }
  const std::uint64_t count = entry_count();
  if (count == entries_reserved_) {
    const std::uint64_t step = std::min(kEntryStep, header_->max_entries - count);
    if (step == 0) return std::nullopt;
    const std::uint64_t offset = header_->entries_offset + count * sizeof(shm::Entry);
    if (!file_.reserve(offset, step * sizeof(shm::Entry)).ok()) return std::nullopt;
    entries_reserved_ += step;
  }
  header_->entry_count.store_release(count + 1);
  return static_cast<std::uint32_t>(count);
}

void ObjectIndex::release_entry(std::uint32_t id) { free_entries_.push_back(id); }

[[gnu::hot]] std::uint64_t ObjectIndex::hash(std::string_view key) const {
  return hash_key(key.data(), key.size(), header_->hash_seed);
}

[[gnu::hot]] OptionalId ObjectIndex::find(std::string_view key, std::uint64_t hash) const {
  OptionalId found;
  table_->for_candidates(hash, [&](std::uint32_t id) {
    if (entries_[id].hash.load_relaxed() != hash || key_of(id) != key) return false;
    found = id;
    return true;
  });
  return found;
}

OptionalId ObjectIndex::find_by_hash(std::uint64_t hash) const {
  if (hash == 0) return std::nullopt;
  OptionalId found;
  table_->for_candidates(hash, [&](std::uint32_t id) {
    if (entries_[id].hash.load_relaxed() != hash) return false;
    found = id;
    return true;
  });
  return found;
}

[[gnu::hot]] OptionalId ObjectIndex::store_key(std::uint32_t id, std::string_view key) {
  if (key.size() <= shm::kShortKeyBytes) {
    std::memcpy(entries_[id].short_key, key.data(), key.size());
    return 0;
  }
  const auto record = keys_->allocate(static_cast<std::uint32_t>(key.size()));
  if (record) std::memcpy(key_bytes_ + *record * shm::kRecordUnitBytes, key.data(), key.size());
  return record;
}

void ObjectIndex::free_key(shm::KeyField field) {
  if (field.key_bytes > shm::kShortKeyBytes) keys_->free(field.record, field.key_bytes);
}

bool ObjectIndex::claim_key(shm::KeyField field) {
  return field.key_bytes <= shm::kShortKeyBytes || keys_->claim(field.record, field.key_bytes);
}

OptionalId ObjectIndex::store_extents(std::span<const shm::ExtentRecord> extents) {
  const auto record = keys_->allocate(static_cast<std::uint32_t>(extents.size_bytes()));
  if (record) {
    std::memcpy(key_bytes_ + *record * shm::kRecordUnitBytes, extents.data(), extents.size_bytes());
  }
  return record;
}

std::string_view ObjectIndex::key_of(std::uint32_t id) const {
  const auto field = std::bit_cast<shm::KeyField>(entries_[id].key.load_relaxed());
  if (field.key_bytes <= shm::kShortKeyBytes) {
    return {reinterpret_cast<const char*>(entries_[id].short_key), field.key_bytes};
  }
  const std::uint64_t at = std::uint64_t{field.record} * shm::kRecordUnitBytes;
  if (at + field.key_bytes > keys_->reserved_bytes()) return {};
  return {reinterpret_cast<const char*>(key_bytes_) + at, field.key_bytes};
}

ObjectIndex::Extents ObjectIndex::extents_of(std::uint32_t id) const {
  const shm::Entry& entry = entries_[id];
  const auto field = std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
  const std::uint64_t extent = entry.extent.load_relaxed();
  if (field.extent_count == 1) {
    const std::uint64_t length = entry.length.load_relaxed();
    return {{extent, (length + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes}};
  }
  const std::uint64_t bytes = field.extent_count * sizeof(shm::ExtentRecord);
  if (field.extent_count == 0 || field.extent_count > MC_MAX_EXTENTS ||
      extent > keys_->reserved_bytes() / shm::kRecordUnitBytes ||
      extent * shm::kRecordUnitBytes + bytes > keys_->reserved_bytes()) {
    return {};
  }
  Extents extents(field.extent_count);
  std::memcpy(extents.data(), key_bytes_ + extent * shm::kRecordUnitBytes, bytes);
  return extents;
}

std::optional<ObjectIndex::Range> ObjectIndex::next_huge_range() {
  const auto next = [](std::uint64_t offset, std::uint64_t reserved,
                       std::uint64_t& done) -> std::optional<Range> {
    const std::uint64_t whole = reserved / kHugePageBytes * kHugePageBytes;
    if (whole <= done) return std::nullopt;
    const Range range{offset + done, std::min(whole - done, kHugeStepBytes)};
    done += range.bytes;
    return range;
  };
  // The table first: every lookup starts there.
  const std::uint64_t generation = header_->generation.load_relaxed();
  if (generation != huge_generation_) huge_table_bytes_ = 0;
  huge_generation_ = generation;
  const shm::TableDescriptor& table = header_->tables[generation & 1];
  const std::uint64_t table_bytes = table.bucket_count.load_relaxed() * sizeof(shm::Bucket);
  if (auto range = next(table.offset_bytes.load_relaxed(), table_bytes, huge_table_bytes_)) {
    return range;
  }
  const std::uint64_t entry_bytes = entries_reserved_ * sizeof(shm::Entry);
  if (auto range = next(header_->entries_offset, entry_bytes, huge_entry_bytes_)) return range;
  return next(header_->keys_offset, keys_->reserved_bytes(), huge_key_bytes_);
}

[[gnu::hot]] std::uint64_t ObjectIndex::next_sequence() {
  const std::uint64_t sequence = header_->next_sequence.load_relaxed();
  header_->next_sequence.store_relaxed(sequence + 1);
  return sequence;
}

std::uint64_t ObjectIndex::memory_bytes() const {
  return file_.resident_bytes() + keys_->memory_bytes() +
         free_entries_.capacity() * sizeof(std::uint32_t);
}

}  // namespace mc::agent
