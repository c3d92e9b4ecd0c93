// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/remote_regions.h"

#include <algorithm>
#include <string>

namespace mc::transport {

namespace {

constexpr std::uint64_t kAskAgainNs = 1'000'000'000;  // for a range without memory

void use_keys(RemoteRegion& region, const RemoteRegions::Epochs& epochs, std::uint64_t version) {
  region.keys.fill(nullptr);
  for (const RegionKeys& device : region.described.devices) {
    if (device.epoch == epochs[device.slot]) region.keys[device.slot] = &device;
  }
  region.version = version;
}

}  // namespace

bool RemoteRegion::has_keys(std::size_t slot, std::uint64_t offset_bytes,
                            std::uint64_t size_bytes) const {
  if (keys[slot] == nullptr) return false;
  const std::uint32_t shift = described.chunk_shift;
  const std::uint64_t last = (offset_bytes + size_bytes - 1) >> shift;
  for (std::uint64_t chunk = offset_bytes >> shift; chunk <= last; ++chunk) {
    if (keys[slot]->keys[chunk] == 0) return false;
  }
  return true;
}

Result<RemoteRegionId> RemoteRegions::import(PeerId peer, std::span<const std::byte> text) {
  auto described = RegionDescriptor::decode(format_, text);
  if (!described) {
    return fail(MC_INVALID_ARGUMENT, "this does not describe a region of a peer that speaks " +
                                         std::string(format_.transport));
  }
  for (auto& region : regions_) {
    if (!region || region->peer != peer) continue;
    // The regions of the peer's earlier incarnation are void.
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

Outcome RemoteRegions::admit(const Operation& operation, std::uint64_t size_bytes) {
  const RemoteRegion* region = find(operation.region);
  if (region == nullptr || region->gone || !region->known) return Outcome::kStale;
  const std::uint64_t region_bytes = region->described.size_bytes;
  if (region->peer != operation.peer || size_bytes > region_bytes ||
      operation.offset_bytes > region_bytes - size_bytes) {
    return Outcome::kInvalid;
  }
  return region->allows(operation.verb) ? Outcome::kDone : Outcome::kRefused;
}

void RemoteRegions::forget(PeerId peer) {
  for (auto& region : regions_) {
    if (region && region->peer == peer) region.reset();
  }
}

void RemoteRegions::doubt(RemoteRegion& region) {
  region.known = false;
  region.gone = false;
  region.asked_version = 0;
}

RemoteRegions::State RemoteRegions::check(RemoteRegion& region, const Epochs& epochs,
                                          std::uint64_t version) {
  if (region.gone) return State::kGone;
  if (!region.known) {
    if (region.asked_version == version) return State::kWaits;
    region.asked_version = version;
    region.asking = true;
    return State::kMustAsk;
  }
  if (region.doubted) {
    region.doubted = false;
    region.asking = true;
    region.version = version;
    return State::kMustAsk;
  }
  if (region.version != version) {
    use_keys(region, epochs, version);
    bool complete = true;
    for (std::size_t slot = 0; slot < kMaxDeviceSlots; ++slot) {
      complete = complete && (epochs[slot] == 0 || region.keys[slot] != nullptr);
    }
    // A description that was asked for with this version will not become more complete.
    if (!complete && region.asked_version != version) {
      region.asked_version = version;
      region.asking = true;
      return State::kMustAsk;
    }
    region.asking = false;
  }
  return region.asking ? State::kWaits : State::kReady;
}

RemoteRegions::State RemoteRegions::check_range(RemoteRegion& region, const Epochs& epochs,
                                                std::uint64_t version, std::uint64_t slots,
                                                std::uint64_t offset_bytes,
                                                std::uint64_t size_bytes, std::uint64_t now_ns) {
  const State state = check(region, epochs, version);
  if (state == State::kMustAsk) {
    region.ask_again_ns = now_ns + kAskAgainNs;
    return state;
  }
  bool covered = state == State::kReady && region.described.covers_all(offset_bytes, size_bytes);
  for (std::size_t slot = 0; slots >> slot != 0; ++slot) {
    if ((slots >> slot & 1) == 0) continue;
    covered = covered && region.has_keys(slot, offset_bytes, size_bytes);
  }
  if (covered) return State::kReady;
  if (now_ns >= region.ask_again_ns) {
    region.ask_again_ns = now_ns + kAskAgainNs;
    doubt(region);
  }
  return State::kWaits;
}

bool RemoteRegions::on_description(PeerId peer, RegionId id, std::span<const std::byte> text) {
  for (auto& region : regions_) {
    if (!region || region->peer != peer || region->asked_as != id) continue;
    region->asking = false;
    if (text.empty()) {
      region->gone = true;
      return true;
    }
    auto described = RegionDescriptor::decode(format_, text);
    // If the region was imported by a name, the answer tells the id; the peer may have made the
    // region anew.
    const bool named = region->asked_as != region->described.region;
    if (!described || (!named && described->region != id)) return false;
    region->described = std::move(*described);
    region->known = true;
    region->version = 0;
  }
  return true;
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

}  // namespace mc::transport
