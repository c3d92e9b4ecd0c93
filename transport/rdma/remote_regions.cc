// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/remote_regions.h"

#include <algorithm>

namespace mc::transport::rdma {

bool RemoteRegion::covers(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
  if (size_bytes == 0 || size_bytes > described.size_bytes ||
      offset_bytes > described.size_bytes - size_bytes) {
    return false;
  }
  const std::uint64_t end = offset_bytes + size_bytes;
  for (std::uint64_t at = offset_bytes; at < end;) {
    const std::uint64_t chunk = at >> described.chunk_shift;
    const std::uint64_t base = chunk << described.chunk_shift;
    const std::uint64_t until = std::min(end, (chunk + 1) << described.chunk_shift);
    const Cover& cover = described.covers[chunk];
    if (at < base + cover.from * kCoverPageBytes || until > base + cover.to * kCoverPageBytes) {
      return false;
    }
    at = until;
  }
  return true;
}

bool RemoteRegion::has_keys(std::size_t slot, std::uint64_t offset_bytes,
                            std::uint64_t size_bytes) const {
  if (keys[slot] == nullptr) return false;
  const std::uint64_t last = (offset_bytes + size_bytes - 1) >> described.chunk_shift;
  for (std::uint64_t chunk = offset_bytes >> described.chunk_shift; chunk <= last; ++chunk) {
    if (keys[slot][chunk] == 0) return false;
  }
  return true;
}

Result<RemoteRegionId> RemoteRegions::import(PeerId peer, std::span<const std::byte> text) {
  auto described = decode_descriptor(text);
  if (!described) {
    return fail(MC_INVALID_ARGUMENT, "this does not describe a region of an rdma peer");
  }
  for (auto& region : regions_) {
    if (!region || region->peer != peer) continue;
    // What a peer had before it was started again is void.
    if (region->known && region->described.incarnation != described->incarnation) {
      region.reset();
      continue;
    }
    if (region->asked_as != described->region) continue;
    region->described = std::move(*described);
    region->version = 0;
    region->gone = false;
    return region->id;
  }
  auto added = add(peer);
  if (!added) return fail(added.error());
  (*added)->asked_as = described->region;
  (*added)->described = std::move(*described);
  return (*added)->id;
}

Result<RemoteRegionId> RemoteRegions::import_named(PeerId peer, std::uint64_t name) {
  for (const auto& region : regions_) {
    if (region && region->peer == peer && region->asked_as == name) return region->id;
  }
  auto added = add(peer);
  if (!added) return fail(added.error());
  (*added)->asked_as = name;
  (*added)->known = false;
  return (*added)->id;
}

Result<RemoteRegion*> RemoteRegions::add(PeerId peer) {
  std::size_t free = regions_.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (!regions_[i]) free = std::min(free, i);
    if (regions_[i] && regions_[i]->peer == peer) ++count;
  }
  if (count >= kMaxRegions || free >= std::size_t{kMaxRegions} * kMaxPeers) {
    return fail(MC_BUSY, "4096 regions of this peer are known already");
  }
  if (free == regions_.size()) regions_.emplace_back();
  regions_[free] = std::make_unique<RemoteRegion>();
  regions_[free]->id = (std::uint64_t{next_generation_++} << 32) | (free + 1);
  regions_[free]->peer = peer;
  return regions_[free].get();
}

void RemoteRegions::forget(PeerId peer) {
  for (auto& region : regions_) {
    if (region && region->peer == peer) region.reset();
  }
}

void RemoteRegions::use_keys(RemoteRegion& region, const DeviceEpochs& epochs,
                             std::uint64_t version) {
  region.keys.fill(nullptr);
  for (const RegionKeys& device : region.described.devices) {
    if (device.epoch == epochs[device.slot]) region.keys[device.slot] = device.keys.data();
  }
  region.version = version;
}

RemoteRegions::State RemoteRegions::check(RemoteRegion& region, const DeviceEpochs& epochs,
                                          std::uint64_t version) {
  if (region.gone) return State::kGone;
  if (!region.known) {
    if (region.asked_version == version) return State::kWaits;
    region.asked_version = version;
    region.asking = true;
    return State::kMustAsk;
  }
  if (region.version != version) {
    use_keys(region, epochs, version);
    bool complete = true;
    for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
      complete = complete && (epochs[slot] == 0 || region.keys[slot] != nullptr);
    }
    // A description that has just been asked for is as complete as it will be.
    if (!complete && region.asked_version != version) {
      region.asked_version = version;
      region.asking = true;
      return State::kMustAsk;
    }
    region.asking = false;
  }
  return region.asking ? State::kWaits : State::kReady;
}

bool RemoteRegions::on_description(PeerId peer, RegionId id, std::span<const std::byte> text) {
  for (auto& region : regions_) {
    if (!region || region->peer != peer || region->asked_as != id) continue;
    region->asking = false;
    if (text.empty()) {
      region->gone = true;
      return true;
    }
    auto described = decode_descriptor(text);
    // By a name, it is the first time that its id is heard; and the peer may have made it anew.
    const bool named = region->asked_as != region->described.region;
    if (!described || (!named && described->region != id)) return false;
    region->described = std::move(*described);
    region->known = true;
    region->version = 0;
  }
  return true;
}

}  // namespace mc::transport::rdma
