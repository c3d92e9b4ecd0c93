// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/local_regions.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

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

std::string locked_memory_remedy() {
  rlimit limit{};
  std::string now = "unknown";
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    now = limit.rlim_cur == RLIM_INFINITY ? "none" : std::to_string(limit.rlim_cur) + " bytes";
  }
  return "; the memory is pinned, and the limit of locked memory is " + now +
         ": raise it (LimitMEMLOCK=infinity in the unit, ulimit -l unlimited), or use a smaller "
         "pool";
}

Result<RegionId> LocalRegions::add(const RegionSpec& spec) {
  if (Status status = regions_.admit(spec); !status.ok()) return fail(std::move(status));
  if (Status status = registrar_.admit(spec); !status.ok()) return fail(std::move(status));
  auto region = std::make_unique<Region>();
  region->spec = spec;
  // For the largest number of devices, since devices may be opened later.
  region->chunk_shift =
      chunk_shift_for(registrar_.format(), spec.size_bytes, registrar_.slot_count());
  const std::uint64_t chunks = ((spec.size_bytes - 1) >> region->chunk_shift) + 1;
  region->covers.resize(chunks);
  for (std::uint64_t chunk = 0; chunk < chunks && !spec.sparse; ++chunk) {
    region->covers[chunk] = whole_chunk(spec.size_bytes, region->chunk_shift, chunk);
  }
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < registrar_.slot_count(); ++slot) {
    if (registrar_.device(slot) != nullptr) slots.push_back(slot);
  }
  Status status = register_with(*region, slots);
  if (!status.ok()) return fail(std::move(status));
  return regions_.add(std::move(region));
}

bool LocalRegions::close(RegionId id) {
  if (Region* const region = regions_.at(id); region != nullptr) {
    for (const auto& [chunk, change] : region->changes) change->abandon();
    ending_[id] += region->makings_open;
    for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
      for (Registered& each : region->registered[slot]) end_beside(id, slot, std::move(each));
      for (auto& [chunk, each] : region->former[slot]) end_beside(id, slot, std::move(each));
    }
    regions_.remove(id);
  }
  const auto at = ending_.find(id);
  if (at == ending_.end()) return true;
  if (at->second > 0) return false;
  ending_.erase(at);
  return true;
}

void LocalRegions::end_beside(RegionId id, std::size_t slot, Registered registered) {
  if (registered == nullptr) return;
  ++ending_[id];
  const auto ending = std::make_shared<Registered>(std::move(registered));
  workers_.run(
      registrar_.device(slot), [ending] { ending->reset(); }, [this, id] { --ending_[id]; });
}

MemoryRange LocalRegions::range_of(const Region& region, std::uint64_t chunk, const Cover& cover) {
  const std::uint64_t begin = (chunk << region.chunk_shift) + cover.from * kCoverPageBytes;
  const std::uint64_t end =
      std::min((chunk << region.chunk_shift) + cover.to * kCoverPageBytes, region.spec.size_bytes);
  return {begin, end - begin};
}

Status LocalRegions::register_with(Region& region, std::span<const std::size_t> slots) const {
  const std::uint64_t chunks = region.covers.size();
  for (const std::size_t slot : slots) region.registered[slot].resize(chunks);
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> failed{false};
  Status status;
  const auto work = [&] {
    for (;;) {
      const std::uint64_t job = next.fetch_add(1);
      if (job >= chunks * slots.size() || failed.load()) return;
      const std::size_t slot = slots[job % slots.size()];
      const std::uint64_t chunk = job / slots.size();
      if (region.covers[chunk] == Cover{}) continue;
      auto made = registrar_.register_memory(slot, region.spec,
                                             range_of(region, chunk, region.covers[chunk]));
      if (made) {
        region.registered[slot][chunk] = std::move(*made);
      } else if (!failed.exchange(true)) {
        status = made.error();  // only the first failure gets here
      }
    }
  };
  std::vector<std::thread> threads;
  const std::uint64_t wanted = std::min<std::uint64_t>(threads_, chunks * slots.size());
  // A thread pays for itself from two chunks on.
  if (chunks > 1) {
    for (std::uint64_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (status.ok()) return status;
  for (const std::size_t slot : slots) deregister(region, slot);
  return status;
}

void LocalRegions::deregister(Region& region, std::size_t slot) {
  region.registered[slot].clear();
  region.former[slot].clear();
}

Status LocalRegions::on_opened(std::size_t slot) {
  for (auto& region : regions_.rows()) {
    if (!region) continue;
    if (region->spec.sparse) {
      register_beside(*region, slot);
      continue;
    }
    Status status = register_with(*region, {&slot, 1});
    if (status.ok()) continue;
    on_closing(slot);
    return status;
  }
  return {};
}

void LocalRegions::on_closing(std::size_t slot) {
  for (auto& region : regions_.rows()) {
    if (!region) continue;
    deregister(*region, slot);
    for (const auto& [chunk, change] : region->changes) change->makings[slot].reset();
  }
}

Result<std::vector<std::byte>> LocalRegions::describe(RegionId id) const {
  const Region* region = regions_.at(id);
  for (const auto& other : regions_.rows()) {
    if (region == nullptr && other && other->spec.name == id && id != 0) region = other.get();
  }
  if (region == nullptr) return fail(MC_INVALID_ARGUMENT, "no such region is registered");
  RegionDescriptor descriptor;
  descriptor.region = region->id;
  descriptor.incarnation = incarnation_;
  descriptor.base = registrar_.base_of(region->spec.data);
  descriptor.size_bytes = region->spec.size_bytes;
  descriptor.rights = region->spec.rights;
  descriptor.guarded = region->spec.guard != nullptr;
  descriptor.chunk_shift = region->chunk_shift;
  descriptor.covers = region->covers;
  for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
    if (region->registered[slot].empty()) continue;
    RegionKeys keys{static_cast<std::uint8_t>(slot), registrar_.epoch(slot), {}};
    for (const Registered& chunk : region->registered[slot]) {
      keys.keys.push_back(chunk != nullptr ? chunk->remote_key : 0);
    }
    descriptor.devices.push_back(std::move(keys));
  }
  return descriptor.encode(registrar_.format());
}

bool LocalRegions::find(std::span<Piece> pieces) const {
  return std::ranges::all_of(pieces, [&](Piece& piece) {
    piece.region = regions_.find(piece);
    return piece.region != kNoRegion;
  });
}

bool LocalRegions::holds(std::span<const Piece> pieces) const {
  return std::ranges::all_of(pieces, [&](const Piece& piece) {
    return regions_.find({piece.data, piece.size_bytes, kNoRegion}) != kNoRegion;
  });
}

LocalRegions::Key LocalRegions::key_of(RegionId id, std::size_t slot, const std::byte* data) const {
  const Region* region = regions_.at(id);
  if (region == nullptr || region->registered[slot].empty()) return {};
  const auto offset = static_cast<std::uint64_t>(data - region->spec.data);
  const std::uint64_t chunk = offset >> region->chunk_shift;
  const MemoryRange range = range_of(*region, chunk, region->covers[chunk]);
  const Registered& registered = region->registered[slot][chunk];
  // An address before the range wraps around.
  if (registered == nullptr || offset - range.offset_bytes >= range.size_bytes) return {};
  return {registered->local_key, range.offset_bytes + range.size_bytes - offset};
}

// ---- Sparse regions -----------------------------------------------------------------------------

// Memory that comes and goes:
//
//   chunk   ├── registered ──┤ new ┊          grows: the new key first, then the former key goes
//           ├─ stays ─┤ gone ┊                loses memory: the key goes at once
//
// A chunk has a single registration with each device. The memory of a chunk may have holes, for
// example where one arena of a pool ends and the next begins. Then the largest part is registered.

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
  if (region == nullptr) return {};
  if (!region->changes.empty()) return {MC_BUSY, "the devices are registering the memory"};
  return region->backing;
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
    ++region.makings_open;
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
        [this, id = region.id, chunk, slot, making, change] {
          on_made(id, chunk, slot, *making, change);
        });
  }
}

void LocalRegions::on_made(RegionId id, std::uint64_t chunk, std::size_t slot, Making& making,
                           const std::shared_ptr<Change>& change) {
  const bool wanted = change->makings[slot].get() == &making;
  if (!wanted) end_beside(id, slot, std::move(making.made));
  if (Region* const region = regions_.at(id); region != nullptr) {
    --region->makings_open;
    on_registered(id, chunk, change);
  } else {
    --ending_[id];
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
