// SPDX-License-Identifier: Apache-2.0
//
// The part of LocalRegions for memory that comes and goes:
//
//   chunk   ├── registered ──┤ new ┊          grows: the new key first, then the former key goes
//           ├─ stays ─┤ gone ┊                loses memory: the key goes at once
//
// A chunk has a single registration with each device. The memory of a chunk may have holes, for
// example where one arena of a pool ends and the next begins. Then the largest part is registered.
#include <algorithm>

#include "transport/one_sided/local_regions.h"

namespace mc::transport {

namespace {

// The whole pages of the range that lie in a chunk.
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

bool LocalRegions::back(RegionId id, std::span<const MemoryRange> ranges) {
  Region* region = regions_.at(id);
  if (region == nullptr || !region->spec.sparse) return false;
  region->backing = {};
  bool dropped = false;
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
    if (!lies_in(region->covers[chunk], wanted)) dropped = drop(*region, chunk) || dropped;
    if (change != region->changes.end()) {
      change->second->abandon();
      region->changes.erase(change);
    }
    if (wanted != region->covers[chunk]) begin(*region, chunk, wanted);
  }
  return dropped;
}

Status LocalRegions::backing(RegionId id) const {
  const Region* region = regions_.at(id);
  return region == nullptr ? Status() : region->backing;
}

// True: a part was registered.
bool LocalRegions::drop(Region& region, std::uint64_t chunk) {
  bool dropped = false;
  for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
    region.former[slot].erase(chunk);
    if (region.registered[slot].empty() || region.registered[slot][chunk] == nullptr) continue;
    region.registered[slot][chunk].reset();
    dropped = true;
  }
  region.covers[chunk] = {};
  return dropped;
}

bool LocalRegions::has(const Region& region, std::size_t slot, std::uint64_t chunk,
                       const Cover& wanted) {
  return region.covers[chunk] == wanted && !region.registered[slot].empty() &&
         region.registered[slot][chunk] != nullptr;
}

void LocalRegions::register_beside(Region& region, std::size_t slot) {
  region.registered[slot].resize(region.covers.size());
  for (std::uint64_t chunk = 0; chunk < region.covers.size(); ++chunk) {
    // A change that is under way sees the new device at the end, and starts again.
    if (region.covers[chunk] == Cover{} || region.changes.contains(chunk)) continue;
    begin(region, chunk, region.covers[chunk]);
  }
}

void LocalRegions::begin(Region& region, std::uint64_t chunk, const Cover& wanted) {
  const auto change = std::make_shared<Change>();
  change->wanted = wanted;
  for (std::size_t slot = 0; slot < registrar_.slot_count(); ++slot) {
    const void* device = registrar_.device(slot);
    if (device == nullptr || has(region, slot, chunk, wanted)) continue;
    change->makings[slot] = std::make_shared<Making>();
    change->makings[slot]->device = device;
    ++change->open_count;
  }
  if (change->open_count == 0) {
    // The next device to be opened registers the chunk.
    region.covers[chunk] = wanted;
    return;
  }
  region.changes[chunk] = change;
  const MemoryRange range = range_of(region, chunk, wanted);
  // Without threads, the last making ends the change, and begin() of another change may follow.
  const auto makings = change->makings;
  for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
    const auto& making = makings[slot];
    if (!making) continue;
    workers_.run(
        making->device,
        [this, making, slot, range, spec = region.spec] {
          auto made = registrar_.register_memory(slot, spec, range);
          if (made) {
            making->made = std::move(*made);
          } else {
            making->status = made.error();
          }
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
  for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
    const auto& making = change->makings[slot];
    const void* device = slot < registrar_.slot_count() ? registrar_.device(slot) : nullptr;
    same_devices = same_devices && (device == (making ? making->device : nullptr) ||
                                    (!making && has(*region, slot, chunk, change->wanted)));
    if (making && making->made == nullptr) {
      region->backing = making->status;
      return;
    }
  }
  if (!same_devices) {
    begin(*region, chunk, change->wanted);
    return;
  }
  for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
    if (!change->makings[slot]) continue;
    Registered& registered = region->registered[slot][chunk];
    region->former[slot].erase(chunk);
    if (registered != nullptr) region->former[slot][chunk] = std::move(registered);
    registered = std::move(change->makings[slot]->made);
  }
  region->covers[chunk] = change->wanted;
}

}  // namespace mc::transport
