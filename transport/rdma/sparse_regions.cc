// SPDX-License-Identifier: Apache-2.0
//
// The part of LocalRegions for memory that comes and goes:
//
//   chunk   ├── registered ──┤ new ┊          grows: the new key first, then the former one goes
//           ├─ stays ─┤ gone ┊                loses some: the key goes at once
//
// A chunk has one registration with each device. Where its memory has holes, as where one arena of
// a pool ends and the next begins within it, it is of the largest part.
#include <algorithm>
#include <cerrno>

#include "transport/rdma/local_regions.h"

namespace mc::transport::rdma {

namespace {

// What of the range lies in a chunk, in whole pages.
Cover part_of(const MemoryRange& range, std::uint64_t begin, const Cover& whole,
              std::uint64_t region_bytes) {
  const std::uint64_t end = begin + whole.to * kCoverPageBytes;
  const std::uint64_t range_end = range.offset_bytes + range.size_bytes;
  const std::uint64_t from = std::max(begin, range.offset_bytes);
  const std::uint64_t to = range_end >= region_bytes ? end : std::min(end, range_end);
  if (from >= to) return {};
  const Cover cover{
      static_cast<std::uint32_t>((from - begin + kCoverPageBytes - 1) / kCoverPageBytes),
      static_cast<std::uint32_t>((to - begin) / kCoverPageBytes)};
  return cover.from < cover.to ? cover : Cover{};
}

bool lies_in(const Cover& inner, const Cover& outer) {
  return inner == Cover{} || (inner.from >= outer.from && inner.to <= outer.to);
}

}  // namespace

void LocalRegions::back(RegionId id, std::span<const MemoryRange> ranges) {
  Region* region = regions_.at(id);
  if (region == nullptr || !region->spec.sparse) return;
  region->backing = {};
  for (std::uint64_t chunk = 0; chunk < region->covers.size(); ++chunk) {
    const Cover whole = whole_chunk(region->spec.size_bytes, region->chunk_shift, chunk);
    Cover wanted;
    for (const MemoryRange& range : ranges) {
      const Cover part =
          part_of(range, chunk << region->chunk_shift, whole, region->spec.size_bytes);
      if (part.to - part.from > wanted.to - wanted.from) wanted = part;
    }
    const auto change = region->changes.find(chunk);
    const Cover before =
        change != region->changes.end() ? change->second->wanted : region->covers[chunk];
    if (wanted == before) continue;
    if (!lies_in(region->covers[chunk], wanted)) drop(*region, chunk);
    if (change != region->changes.end()) {
      change->second->abandon();
      region->changes.erase(change);
    }
    if (wanted != region->covers[chunk]) begin(*region, chunk, wanted);
  }
}

Status LocalRegions::backing(RegionId id) const {
  const Region* region = regions_.at(id);
  return region == nullptr ? Status() : region->backing;
}

void LocalRegions::drop(Region& region, std::uint64_t chunk) const {
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    deregister_former(region, slot, chunk);
    if (region.keys[slot].empty() || region.keys[slot][chunk] == nullptr) continue;
    static_cast<void>(devices_[slot]->verbs().dereg_mr(region.keys[slot][chunk]));
    region.keys[slot][chunk] = nullptr;
  }
  region.covers[chunk] = {};
}

void LocalRegions::deregister_former(Region& region, std::size_t slot, std::uint64_t chunk) const {
  const auto former = region.former[slot].find(chunk);
  if (former == region.former[slot].end()) return;
  static_cast<void>(devices_[slot]->verbs().dereg_mr(former->second));
  region.former[slot].erase(former);
}

void LocalRegions::begin(Region& region, std::uint64_t chunk, const Cover& wanted) {
  const auto change = std::make_shared<Change>();
  change->wanted = wanted;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (!devices_[slot]) continue;
    change->made[slot] = std::make_shared<Registration>(*devices_[slot]);
    ++change->open_count;
  }
  if (change->open_count == 0) {
    // Registered by the device that comes next.
    region.covers[chunk] = wanted;
    return;
  }
  region.changes[chunk] = change;
  const MemoryRange range = range_of(region, chunk, wanted);
  // Without threads the last one ends it, and begin() of another may follow.
  const auto made = change->made;
  for (const auto& registration : made) {
    if (!registration) continue;
    opener_.run(
        registration->device,
        [this, registration, range, spec = region.spec] {
          Region like;
          like.spec = spec;
          errno = 0;
          registration->key = register_range(like, registration->device, range);
          if (registration->key == nullptr) registration->error = errno != 0 ? errno : EIO;
        },
        [this, id = region.id, chunk, change] { on_registered(id, chunk, change); });
  }
}

void LocalRegions::on_registered(RegionId id, std::uint64_t chunk,
                                 const std::shared_ptr<Change>& change) {
  if (--change->open_count > 0) return;
  Region* region = regions_.at(id);
  if (region == nullptr) return;
  const auto current = region->changes.find(chunk);
  if (current == region->changes.end() || current->second != change) return;
  region->changes.erase(current);
  bool same_devices = true;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    const auto& made = change->made[slot];
    same_devices = same_devices && (devices_[slot] != nullptr) == (made != nullptr) &&
                   (!made || &made->device == devices_[slot].get());
    if (made && made->key == nullptr) {
      RegionSpec part = region->spec;
      part.size_bytes = range_of(*region, chunk, change->wanted).size_bytes;
      region->backing = why_not_registered(part, made->device, made->error);
      return;
    }
  }
  if (!same_devices) {
    begin(*region, chunk, change->wanted);
    return;
  }
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (!change->made[slot]) continue;
    deregister_former(*region, slot, chunk);
    ibv_mr*& key = region->keys[slot][chunk];
    if (key != nullptr) region->former[slot][chunk] = key;
    key = std::exchange(change->made[slot]->key, nullptr);
  }
  region->covers[chunk] = change->wanted;
}

}  // namespace mc::transport::rdma
