// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/catalog.h"

#include <algorithm>

namespace mc::tier {

std::uint32_t Catalog::find(const TierKey& key) const {
  const std::uint32_t number = index_.find(key);
  return number != kNoEntry && may_be_read(number) ? number : kNoEntry;
}

// An agent has 64 namespaces at most; the disks may have objects of earlier ones.
std::uint8_t Catalog::number_namespace(std::uint64_t id) {
  const auto known = std::ranges::find(namespaces_, id);
  const auto number = static_cast<std::size_t>(known - namespaces_.begin());
  if (known == namespaces_.end()) {
    if (number == kOtherNamespaces) return kOtherNamespaces;
    namespaces_.push_back(id);
  }
  return static_cast<std::uint8_t>(number);
}

std::uint64_t Catalog::memory_bytes() const {
  std::uint64_t bytes = index_.memory_bytes() + removals_.memory_bytes() +
                        orders_.size() * kBlockOrders * sizeof(std::uint64_t);
  for (const auto& segments : live_) bytes += segments.capacity() * sizeof(segments[0]);
  return bytes;
}

void Catalog::erase(std::uint32_t number) {
  const TierEntry& entry = index_.at(number);
  take_live(entry.place.segment, record_units(entry));
  index_.erase(number);
}

std::uint32_t Catalog::erase_some(std::uint32_t segment, std::uint32_t from, std::uint32_t most,
                                  std::vector<TierEntry>& erased) {
  const std::uint32_t end = std::min(index_.end(), from + most);
  for (std::uint32_t number = from; number < end; ++number) {
    if (!index_.exists(number)) continue;
    const TierEntry& entry = index_.at(number);
    const bool chosen = number_of(segment) == kAllSegments
                            ? disk_of(entry.place.segment) == disk_of(segment)
                            : entry.place.segment == segment;
    if (!chosen) continue;
    erased.push_back(entry);
    erase(number);
  }
  return end == index_.end() ? kNoEntry : end;
}

const Catalog::Unfinished* Catalog::unfinished(const TierKey& key) const {
  const auto found = unfinished_.find(key);
  return found == unfinished_.end() ? nullptr : &found->second;
}

void Catalog::end(const TierKey& key, std::uint64_t order) {
  const auto found = unfinished_.find(key);
  if (found != unfinished_.end() && found->second.order == order) unfinished_.erase(found);
}

bool Catalog::insert(const RecordHeader& header) {
  const std::uint32_t number = index_.insert({.hash = header.hash,
                                              .more = header.more,
                                              .version = header.version,
                                              .place = header.place(),
                                              .length = static_cast<std::uint32_t>(header.length),
                                              .key_bytes = header.key_bytes & 0x7ffu,
                                              .marks = header.marks & 0x3fu,
                                              .name_space = number_namespace(header.namespace_id)});
  if (number == kNoEntry) return false;
  add_live(header.segment, record_units(header));
  if (recovering_) {
    if (number / kBlockOrders == orders_.size()) {
      orders_.push_back(std::make_unique_for_overwrite<std::uint64_t[]>(kBlockOrders));
    }
    order_of(number) = header.order;
  }
  return true;
}

bool Catalog::commit(const RecordHeader& header) {
  const Unfinished* const latest = unfinished(header.tier_key());
  if (latest == nullptr || latest->order != header.order) return false;
  const std::uint32_t number = index_.find(header.tier_key());
  if (number != kNoEntry) erase(number);
  return insert(header);
}

bool Catalog::commit_copy(const RecordHeader& header, Place from) {
  const std::uint32_t number = index_.find(header.tier_key());
  if (number == kNoEntry || index_.at(number).place != from) return false;
  TierEntry& entry = index_.at(number);
  take_live(entry.place.segment, record_units(entry));
  entry.place = header.place();
  entry.uses = 0;
  add_live(entry.place.segment, record_units(entry));
  return true;
}

void Catalog::add_disk(std::uint32_t disk, std::uint32_t segments) {
  if (live_.size() <= disk) {
    live_.resize(disk + 1);
    disk_live_.resize(disk + 1);
    shadowed_.resize(disk + 1);
  }
  live_[disk].resize(segments);
}

void Catalog::forget_segment(std::uint32_t segment) { take_live(segment, live_units(segment)); }

void Catalog::forget_disk(std::uint32_t disk) {
  std::fill(live_[disk].begin(), live_[disk].end(), 0);
  disk_live_[disk] = 0;
  shadowed_[disk].clear();
}

std::uint64_t Catalog::removal_on(const TierKey& key, std::uint32_t disk) const {
  const std::uint32_t number = removals_.find(removal_key(key, disk));
  return number == kNoEntry ? 0 : removals_.at(number).version;
}

void Catalog::shadow(const Shadowed& record) {
  const std::uint32_t disk = disk_of(record.segment);
  if (removal_on(record.key, disk) < record.order) shadowed_[disk].push_back(record);
}

Catalog::Found Catalog::recover(const RecordHeader& header) {
  const TierKey key = header.tier_key();
  const Shadowed record{.key = key, .order = header.order, .segment = header.segment};
  for (std::uint32_t disk = 0; disk < live_.size(); ++disk) {
    if (removal_on(key, disk) <= header.order) continue;
    shadow(record);
    return Found::kOutdated;
  }
  const std::uint32_t number = index_.find(key);
  if (number != kNoEntry) {
    if (order_of(number) == header.order) return Found::kSame;
    if (order_of(number) > header.order) {
      shadow(record);
      return Found::kReplaced;
    }
    shadow({.key = key, .order = order_of(number), .segment = index_.at(number).place.segment});
    erase(number);
  }
  return insert(header) ? Found::kLatest : Found::kFull;
}

void Catalog::recover_instead(const RecordHeader& header) {
  commit_copy(header, index_.at(index_.find(header.tier_key())).place);
}

bool Catalog::recover_removal(const RecordHeader& header, std::uint32_t disk) {
  const TierKey key = header.tier_key(), name = removal_key(key, disk);
  const std::uint32_t known = removals_.find(name);
  if (known == kNoEntry) {
    const std::uint32_t added = removals_.insert(
        {.hash = name.hash, .more = name.more, .version = header.order, .place = {}});
    if (added == kNoEntry) return false;
  } else if (removals_.at(known).version < header.order) {
    removals_.at(known).version = header.order;
  }
  const std::uint32_t number = index_.find(key);
  if (number == kNoEntry || order_of(number) > header.order) return true;
  shadow({.key = key, .order = order_of(number), .segment = index_.at(number).place.segment});
  erase(number);
  return true;
}

std::optional<std::uint32_t> Catalog::next_shadowed(std::uint32_t disk) {
  constexpr int kAtOnce = 32;
  for (int i = 0; i < kAtOnce && !shadowed_[disk].empty(); ++i) {
    const Shadowed record = shadowed_[disk].front();
    shadowed_[disk].pop_front();
    if (removal_on(record.key, disk) < record.order) return number_of(record.segment);
  }
  return std::nullopt;
}

bool Catalog::free_some() {
  if (recovering_) return false;
  constexpr std::size_t kAtOnce = 16;
  for (std::size_t i = 0; i < kAtOnce && !orders_.empty(); ++i) orders_.pop_back();
  return removals_.free_some() || !orders_.empty();
}

}  // namespace mc::tier
