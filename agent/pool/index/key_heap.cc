// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/index/key_heap.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace mc::agent {

KeyHeap::KeyHeap(MakeUsable make_usable, std::uint64_t usable_bytes)
    : make_usable_(std::move(make_usable)) {
  lists_.fill(kNoSlab);
  add_slabs(std::min(usable_bytes, kMaxBytes) / kSlabBytes);
}

// Returns 0 for a size that no record may have.
std::uint32_t KeyHeap::class_of(std::uint32_t bytes) {
  return bytes > kMaxRecordBytes ? 0 : (bytes + kUnitBytes - 1) / kUnitBytes;
}

bool KeyHeap::grow() {
  const std::uint64_t bytes = std::min(kGrowBytes, kMaxBytes - reserved_bytes());
  if (bytes == 0 || !make_usable_(reserved_bytes(), bytes)) return false;
  add_slabs(bytes / kSlabBytes);
  return true;
}

void KeyHeap::add_slabs(std::uint64_t slab_count) {
  const auto old_count = static_cast<std::uint32_t>(slabs_.size());
  const std::uint32_t new_count = old_count + static_cast<std::uint32_t>(slab_count);
  if (new_count > slabs_.capacity()) {
    slabs_.reserve(std::max<std::size_t>(new_count, slabs_.capacity() * 2));
  }
  slabs_.resize(new_count);
  // The list is last in, first out: the file fills from its start.
  for (std::uint32_t slab = new_count; slab-- > old_count;) put_in_list(slab, kReservationCache);
}

void KeyHeap::put_in_list(std::uint32_t slab, std::uint32_t list) {
  const std::uint32_t next = lists_[list];
  slabs_[slab].prev = kNoSlab;
  slabs_[slab].next = next;
  if (next != kNoSlab) slabs_[next].prev = slab;
  lists_[list] = slab;
}

void KeyHeap::take_from_list(std::uint32_t slab, std::uint32_t list) {
  const std::uint32_t prev = slabs_[slab].prev;
  const std::uint32_t next = slabs_[slab].next;
  if (next != kNoSlab) slabs_[next].prev = prev;
  if (prev != kNoSlab) {
    slabs_[prev].next = next;
  } else {
    lists_[list] = next;
  }
}

// Moves a slab from the list of empty slabs to a class.
void KeyHeap::assign(std::uint32_t slab, std::uint32_t units) {
  auto records = std::make_unique<Records>();
  records->units = units;
  const std::uint32_t count = kSlabUnits / units;
  const std::uint32_t full_words = count / 64;
  std::fill_n(records->free.begin(), full_words, ~std::uint64_t{0});
  if (count % 64 != 0) records->free[full_words] = (std::uint64_t{1} << (count % 64)) - 1;
  const std::uint32_t words = (count + 63) / 64;
  records->words_with_free = ~std::uint64_t{0} >> (64 - words);
  take_from_list(slab, kReservationCache);
  slabs_[slab].records = std::move(records);
  ++slabs_in_use_;
  put_in_list(slab, units);
}

void KeyHeap::mark_used(std::uint32_t slab, std::uint32_t record) {
  Records& records = *slabs_[slab].records;
  std::uint64_t& word = records.free[record / 64];
  word &= ~(std::uint64_t{1} << (record % 64));
  if (word == 0) records.words_with_free &= ~(std::uint64_t{1} << (record / 64));
  if (records.words_with_free == 0) take_from_list(slab, records.units);
  ++records.used;
  used_units_ += records.units;
}

void KeyHeap::mark_free(std::uint32_t slab, std::uint32_t record) {
  Records& records = *slabs_[slab].records;
  if (records.words_with_free == 0) put_in_list(slab, records.units);
  records.free[record / 64] |= std::uint64_t{1} << (record % 64);
  records.words_with_free |= std::uint64_t{1} << (record / 64);
  --records.used;
  used_units_ -= records.units;
  if (records.used != 0) return;
  take_from_list(slab, records.units);
  slabs_[slab].records.reset();
  --slabs_in_use_;
  put_in_list(slab, kReservationCache);
}

OptionalId KeyHeap::allocate(std::uint32_t bytes) {
  const std::uint32_t units = class_of(bytes);
  if (units == 0) return std::nullopt;
  if (lists_[units] == kNoSlab) {
    if (lists_[kReservationCache] == kNoSlab && !grow()) return std::nullopt;
    assign(lists_[kReservationCache], units);
  }
  const std::uint32_t slab = lists_[units];
  const Records& records = *slabs_[slab].records;
  const auto word = static_cast<std::uint32_t>(std::countr_zero(records.words_with_free));
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(records.free[word]));
  const std::uint32_t record = word * 64 + bit;
  mark_used(slab, record);
  return slab * kSlabUnits + record * units;
}

bool KeyHeap::free(std::uint32_t ref, std::uint32_t bytes) {
  const std::uint32_t units = class_of(bytes);
  const std::uint32_t slab = ref / kSlabUnits;
  if (units == 0 || slab >= slabs_.size() || slabs_[slab].records == nullptr) return false;
  const Records& records = *slabs_[slab].records;
  const std::uint32_t record = ref % kSlabUnits / units;
  if (records.units != units || ref % kSlabUnits % units != 0) return false;
  if (record >= kSlabUnits / units) return false;
  if ((records.free[record / 64] >> (record % 64) & 1) != 0) return false;
  mark_free(slab, record);
  return true;
}

bool KeyHeap::claim(std::uint32_t ref, std::uint32_t bytes) {
  const std::uint32_t units = class_of(bytes);
  const std::uint32_t slab = ref / kSlabUnits;
  if (units == 0 || slab >= slabs_.size()) return false;
  const std::uint32_t record = ref % kSlabUnits / units;
  // The last units of a slab may be too few for a record.
  if (ref % kSlabUnits % units != 0 || record >= kSlabUnits / units) return false;
  if (slabs_[slab].records == nullptr) assign(slab, units);
  const Records& records = *slabs_[slab].records;
  if (records.units != units) return false;
  if ((records.free[record / 64] >> (record % 64) & 1) == 0) return false;
  mark_used(slab, record);
  return true;
}

std::size_t KeyHeap::memory_bytes() const {
  return sizeof(*this) + slabs_.capacity() * sizeof(Slab) + slabs_in_use_ * sizeof(Records);
}

std::string KeyHeap::check() const {
  std::uint64_t used_units = 0;
  std::uint64_t in_use = 0;
  std::uint64_t full = 0;
  for (std::uint32_t slab = 0; slab < slabs_.size(); ++slab) {
    if (slabs_[slab].records == nullptr) continue;
    ++in_use;
    if (slabs_[slab].records->words_with_free == 0) ++full;
    std::string broken = check_slab(slab, &used_units);
    if (!broken.empty()) return "slab " + std::to_string(slab) + " " + broken;
  }
  if (in_use != slabs_in_use_) return "wrong count of slabs in use";
  if (used_units != used_units_) return "wrong count of used bytes";
  std::uint64_t listed = 0;
  for (std::uint32_t list = 0; list <= kClasses; ++list) {
    std::string broken = check_list(list, &listed);
    if (!broken.empty()) return "list " + std::to_string(list) + " " + broken;
  }
  return listed + full == slabs_.size() ? "" : "a slab is in no list";
}

std::string KeyHeap::check_slab(std::uint32_t slab, std::uint64_t* used_units) const {
  const Records& records = *slabs_[slab].records;
  if (records.units == 0 || records.units > kClasses) return "has no class";
  const std::uint32_t count = kSlabUnits / records.units;
  std::uint32_t free = 0;
  for (std::uint32_t word = 0; word < kWords; ++word) {
    const bool marked = (records.words_with_free >> word & 1) != 0;
    if (marked != (records.free[word] != 0)) return "has a word marked wrongly";
    free += static_cast<std::uint32_t>(std::popcount(records.free[word]));
  }
  for (std::uint32_t record = count; record < kSlabUnits; ++record) {
    if ((records.free[record / 64] >> (record % 64) & 1) != 0) return "has a record too many";
  }
  if (records.used == 0) return "is empty, but not in the list of empty slabs";
  if (free + records.used != count) return "has a wrong count";
  *used_units += std::uint64_t{records.used} * records.units;
  return "";
}

std::string KeyHeap::check_list(std::uint32_t list, std::uint64_t* listed) const {
  std::uint32_t prev = kNoSlab;
  for (std::uint32_t slab = lists_[list]; slab != kNoSlab; prev = slab, slab = slabs_[slab].next) {
    if (++*listed > slabs_.size()) return "does not end";
    if (slabs_[slab].prev != prev) return "has a broken link";
    const Records* records = slabs_[slab].records.get();
    if ((records == nullptr ? kReservationCache : records->units) != list)
      return "holds a foreign slab";
    if (records != nullptr && records->words_with_free == 0) return "holds a full slab";
  }
  return "";
}

}  // namespace mc::agent
