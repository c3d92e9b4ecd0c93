// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/remote_regions.h"

namespace mc::transport::rdma {

Result<RemoteRegionId> RemoteRegions::import(PeerId peer, std::span<const std::byte> text) {
  auto described = decode_descriptor(text);
  if (!described) {
    return fail(MC_INVALID_ARGUMENT, "this does not describe a region of an rdma peer");
  }
  std::size_t free = regions_.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    auto& region = regions_[i];
    // What a peer had before it was started again is void.
    if (region && region->peer == peer && region->described.incarnation != described->incarnation) {
      region.reset();
    }
    if (!region) {
      free = std::min(free, i);
      continue;
    }
    if (region->peer != peer) continue;
    ++count;
    if (region->described.region != described->region) continue;
    region->described = std::move(*described);
    region->version = 0;
    region->gone = false;
    return region->id;
  }
  if (count >= kMaxRegions || free >= std::size_t{kMaxRegions} * kMaxPeers) {
    return fail(MC_BUSY, "4096 regions of this peer are known already");
  }
  if (free == regions_.size()) regions_.emplace_back();
  auto region = std::make_unique<RemoteRegion>();
  region->id = (std::uint64_t{next_generation_++} << 32) | (free + 1);
  region->peer = peer;
  region->described = std::move(*described);
  regions_[free] = std::move(region);
  return regions_[free]->id;
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
    if (!region || region->peer != peer || region->described.region != id) continue;
    region->asking = false;
    if (text.empty()) {
      region->gone = true;
      return true;
    }
    auto described = decode_descriptor(text);
    if (!described || described->region != id) return false;
    region->described = std::move(*described);
    region->version = 0;
  }
  return true;
}

}  // namespace mc::transport::rdma
