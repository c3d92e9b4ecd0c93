// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/index/bucket_table.h"

#include <algorithm>
#include <bit>

namespace mc::agent {

namespace {

// A table grows when more than this percentage of its slots is full. It grows by three tenths; a
// larger step would leave more slots empty.
constexpr std::uint64_t kFullPercent = 80;
constexpr std::uint64_t kLeastBuckets = 64;
constexpr std::uint64_t kReserveStepBytes = 1u << 20;
// Entries moved to the next table with every insertion. The next table fills up only after a
// quarter as many insertions as there are entries, so any number above four would do.
constexpr std::uint64_t kMoveStep = 64;

std::uint64_t larger(std::uint64_t bucket_count) {
  return bucket_count + bucket_count * 3 / 10 + 1;
}

std::uint64_t buckets_for(std::uint64_t count) {
  return std::max(kLeastBuckets, count * 100 / (kFullPercent * shm::kBucketSlots) + 1);
}

}  // namespace

BucketTable::BucketTable(std::byte* base, const MemoryFile* file)
    : header_(reinterpret_cast<shm::IndexHeader*>(base)),
      entries_(reinterpret_cast<shm::Entry*>(base + header_->entries_offset)),
      file_(file),
      base_(base),
      current_(static_cast<unsigned>(header_->generation.load_relaxed() & 1)) {}

Status BucketTable::reset(std::uint64_t expected_count) {
  count_ = 0;
  growing_ = false;
  if (!start_growth(larger(buckets_for(expected_count)))) {
    return {MC_NO_MEMORY, "no memory for the index of " + std::to_string(expected_count) +
                              " objects; lower pool_bytes or raise the memory limit"};
  }
  while (tables_[current_ ^ 1].reserved_bytes < next_bytes_) {
    if (!growth_step()) return {MC_NO_MEMORY, "no memory for the index"};
  }
  growing_ = false;
  current_ ^= 1;
  reset_ = true;
  return {};
}

void BucketTable::publish_reset() {
  if (!reset_) return;
  reset_ = false;
  current_ ^= 1;
  publish();
}

bool BucketTable::start_growth(std::uint64_t bucket_count) {
  bucket_count = std::min(bucket_count, header_->table_max_bytes / sizeof(shm::Bucket));
  const unsigned next = current_ ^ 1;
  if (bucket_count <= tables_[current_].bucket_count) return false;
  const std::uint64_t offset = header_->table_offset[next];
  // An earlier, smaller table may have left data there.
  if (!file_->punch(offset, header_->table_max_bytes).ok()) return false;
  tables_[next].buckets = reinterpret_cast<shm::Bucket*>(base_ + offset);
  tables_[next].bucket_count = bucket_count;
  tables_[next].reserved_bytes = 0;
  next_bytes_ = bucket_count * sizeof(shm::Bucket);
  growing_ = true;
  cursor_ = 0;
  return true;
}

bool BucketTable::growth_step() {
  Table& next = tables_[current_ ^ 1];
  if (next.reserved_bytes < next_bytes_) {
    const std::uint64_t bytes = std::min(kReserveStepBytes, next_bytes_ - next.reserved_bytes);
    const std::uint64_t offset = header_->table_offset[current_ ^ 1] + next.reserved_bytes;
    if (!file_->reserve(offset, bytes).ok()) return false;
    next.reserved_bytes += bytes;
    return true;
  }
  const std::uint64_t end = std::min(cursor_ + kMoveStep, header_->entry_count.load_relaxed());
  // Prefetch all buckets of this step together: the misses, one after the other, would dominate
  // the time.
  for (std::uint64_t at = cursor_; at < end; ++at) {
    const std::uint64_t hash = entries_[at].hash.load_relaxed();
    for (const Table& table : tables_) {
      __builtin_prefetch(table.buckets + shm::home_bucket(hash, table.bucket_count), 1);
    }
  }
  for (; cursor_ < end; ++cursor_) {
    const shm::Entry& entry = entries_[cursor_];
    if (shm::state_of(entry.version.load_relaxed()) != shm::EntryState::kLive) continue;
    // An entry that is live but not in the current table must stay out of the next table.
    const auto id = static_cast<std::uint32_t>(cursor_);
    const std::uint64_t hash = entry.hash.load_relaxed();
    if (find_slot(tables_[current_], hash, id).bucket == nullptr) continue;
    if (!insert_into(next, hash, id)) return false;
  }
  if (cursor_ >= header_->entry_count.load_relaxed()) publish();
  return true;
}

void BucketTable::publish() {
  const unsigned next = current_ ^ 1;
  header_->tables[next].offset_bytes.store_relaxed(header_->table_offset[next]);
  header_->tables[next].bucket_count.store_relaxed(tables_[next].bucket_count);
  header_->generation.store_release(header_->generation.load_relaxed() + 1);
  // Readers in the old table find zeros, which means a miss. Then they see a new generation and
  // look again. A region that cannot be punched stays allocated until the next growth.
  if (file_->punch(header_->table_offset[current_], header_->table_max_bytes).ok()) {
    tables_[current_].reserved_bytes = 0;
  }
  current_ = next;
  growing_ = false;
}

bool BucketTable::finish_growth() {
  while (growing_) {
    if (!growth_step()) {
      growing_ = false;
      return false;
    }
  }
  return true;
}

[[gnu::hot]] bool BucketTable::prepare_insert() {
  if (growing_) {
    if (growth_step()) return true;
    growing_ = false;
    return false;
  }
  const Table& table = tables_[current_];
  const std::uint64_t slots = table.bucket_count * shm::kBucketSlots;
  if ((count_ + 1) * 100 <= slots * kFullPercent) return true;
  return start_growth(larger(table.bucket_count));
}

[[gnu::hot]] bool BucketTable::insert(std::uint64_t hash, std::uint32_t entry) {
  if (!insert_into(tables_[current_], hash, entry)) {
    // The run of full buckets is too long: only a larger table helps. After a reset the larger table
    // would take the place of the table that readers use.
    if (reset_) return false;
    const std::uint64_t buckets = tables_[current_].bucket_count;
    if (!growing_ && !start_growth(larger(buckets))) return false;
    if (!finish_growth() || !insert_into(tables_[current_], hash, entry)) return false;
  } else if (in_next(entry) && !insert_into(tables_[current_ ^ 1], hash, entry)) {
    growing_ = false;
  }
  ++count_;
  return true;
}

void BucketTable::erase(std::uint64_t hash, std::uint32_t entry) {
  erase_from(tables_[current_], hash, entry);
  if (in_next(entry)) erase_from(tables_[current_ ^ 1], hash, entry);
  --count_;
}

void BucketTable::replace(std::uint64_t hash, std::uint32_t old_entry, std::uint32_t new_entry) {
  const BucketSlot place = find_slot(tables_[current_], hash, old_entry);
  if (place.bucket != nullptr) place.set(hash, new_entry, hint_of(new_entry));
  if (in_next(old_entry)) erase_from(tables_[current_ ^ 1], hash, old_entry);
  if (in_next(new_entry) && !insert_into(tables_[current_ ^ 1], hash, new_entry)) growing_ = false;
}

[[gnu::hot]] bool BucketTable::insert_into(Table& table, std::uint64_t hash, std::uint32_t entry) {
  const std::uint64_t home = shm::home_bucket(hash, table.bucket_count);
  std::uint64_t at = home;
  for (std::uint64_t probes = 0; probes < shm::kMaxProbes; ++probes) {
    shm::Bucket& bucket = table.buckets[at];
    for (std::size_t slot = 0; slot < shm::kBucketSlots; ++slot) {
      if (bucket.slots[slot].load_relaxed() != 0) continue;
      // Readers must see the `passed` counts before the slot, or a reader would stop too early.
      for (std::uint64_t i = home; i != at; i = i + 1 == table.bucket_count ? 0 : i + 1) {
        shm::Word32& passed = table.buckets[i].passed;
        passed.store_relaxed(passed.load_relaxed() + 1);
      }
      BucketSlot{&bucket, slot}.set(hash, entry, hint_of(entry));
      return true;
    }
    at = at + 1 == table.bucket_count ? 0 : at + 1;
  }
  return false;
}

// The place of the entry's bytes; no place if the object has several extents.
std::uint32_t BucketTable::hint_of(std::uint32_t entry) const {
  const auto field = std::bit_cast<shm::KeyField>(entries_[entry].key.load_relaxed());
  if (field.extent_count != 1) return 0xffffffff;
  return static_cast<std::uint32_t>(entries_[entry].extent.load_relaxed() / shm::kHintUnitBytes);
}

// The half of the hint outside the slot may belong to another object for a moment. Readers only
// prefetch with the hint.
void BucketTable::BucketSlot::set(std::uint64_t hash, std::uint32_t entry,
                                  std::uint32_t hint) const {
  bucket->granules[slot].store_relaxed(static_cast<std::uint16_t>(hint >> 16));
  bucket->slots[slot].store_release(shm::slot_value(hash, entry, hint));
}

[[gnu::hot]] BucketTable::BucketSlot BucketTable::find_slot(const Table& table, std::uint64_t hash,
                                                            std::uint32_t entry) {
  constexpr std::uint64_t kNamed = shm::kSlotTagMask | shm::kSlotEntryMask;
  const std::uint64_t wanted = shm::slot_value(hash, entry, 0);
  std::uint64_t at = shm::home_bucket(hash, table.bucket_count);
  for (std::uint64_t probes = 0; probes < shm::kMaxProbes; ++probes) {
    shm::Bucket& bucket = table.buckets[at];
    for (std::size_t slot = 0; slot < shm::kBucketSlots; ++slot) {
      if ((bucket.slots[slot].load_relaxed() & kNamed) == wanted) return {&bucket, slot};
    }
    if (bucket.passed.load_relaxed() == 0) return {};
    at = at + 1 == table.bucket_count ? 0 : at + 1;
  }
  return {};
}

void BucketTable::erase_from(Table& table, std::uint64_t hash, std::uint32_t entry) {
  const BucketSlot place = find_slot(table, hash, entry);
  if (place.bucket == nullptr) return;
  place.bucket->slots[place.slot].store_release(0);
  const auto found = static_cast<std::uint64_t>(place.bucket - table.buckets);
  const std::uint64_t home = shm::home_bucket(hash, table.bucket_count);
  for (std::uint64_t i = home; i != found; i = i + 1 == table.bucket_count ? 0 : i + 1) {
    shm::Word32& passed = table.buckets[i].passed;
    passed.store_relaxed(passed.load_relaxed() - 1);
  }
}

}  // namespace mc::agent
