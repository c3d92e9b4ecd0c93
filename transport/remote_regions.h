// SPDX-License-Identifier: Apache-2.0
//
// What it is: regions of peers, from their descriptions, with the keys that hold now. Keys are of
//   a device as it was opened once: when the peer's device was opened again, or a key did not hold,
//   the region's keys are asked for over the link, and operations wait for them.
// Threads: the transport's. Owns the descriptions.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace mc::transport {

// REQUIRES: Description has `region`, `incarnation`, `devices` with `slot` and `epoch` each, and
// `static std::optional<Description> decode(std::span<const std::byte>)`; slots are below
// kDeviceCount.
template <typename Description, std::size_t kDeviceCount>
class RemoteRegions {
 public:
  // Of a peer's devices, by slot; 0: not there now.
  using Epochs = std::array<std::uint64_t, kDeviceCount>;
  using Keys = typename decltype(Description::devices)::value_type;

  struct Region {
    RemoteRegionId id = 0;
    PeerId peer = kNoPeer;
    Description described;
    // Null where no key holds. Valid for a version of the peer's epochs.
    std::array<const Keys*, kDeviceCount> keys{};
    std::uint64_t version = 0;
    std::uint64_t asked_version = 0;  // for which the peer was asked for keys
    bool asking = false;
    bool doubted = false;  // a key of it did not hold
    bool gone = false;
  };

  // Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  Result<RemoteRegionId> import(PeerId peer, std::span<const std::byte> text) {
    auto described = Description::decode(text);
    if (!described) {
      return fail(MC_INVALID_ARGUMENT, "this does not describe a region of a peer that speaks " +
                                           std::string(Description::kTransport));
    }
    std::size_t free = regions_.size();
    std::size_t count = 0;
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      auto& region = regions_[i];
      // What a peer had before it was started again is void.
      if (region && region->peer == peer &&
          region->described.incarnation != described->incarnation) {
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
    auto region = std::make_unique<Region>();
    region->id = (std::uint64_t{next_generation_++} << 32) | (free + 1);
    region->peer = peer;
    region->described = std::move(*described);
    regions_[free] = std::move(region);
    return regions_[free]->id;
  }

  Region* find(RemoteRegionId id) {
    const std::uint64_t index = (id & 0xffffffffu) - 1;
    return index < regions_.size() && regions_[index] && regions_[index]->id == id
               ? regions_[index].get()
               : nullptr;
  }
  void forget(PeerId peer) {
    for (auto& region : regions_) {
      if (region && region->peer == peer) region.reset();
    }
  }

  enum class State { kReady, kMustAsk, kWaits, kGone };
  // version: of the peer's epochs; never 0.
  static State check(Region& region, const Epochs& epochs, std::uint64_t version) {
    if (region.gone) return State::kGone;
    if (region.doubted) {
      region.doubted = false;
      region.asking = true;
      region.version = version;
      return State::kMustAsk;
    }
    if (region.version != version) {
      use_keys(region, epochs, version);
      bool complete = true;
      for (std::size_t slot = 0; slot < kDeviceCount; ++slot) {
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
  // What the peer answered; no text: the region is gone. False: it breaks the contract.
  bool on_description(PeerId peer, RegionId id, std::span<const std::byte> text) {
    for (auto& region : regions_) {
      if (!region || region->peer != peer || region->described.region != id) continue;
      region->asking = false;
      if (text.empty()) {
        region->gone = true;
        return true;
      }
      auto described = Description::decode(text);
      if (!described || described->region != id) return false;
      region->described = std::move(*described);
      region->version = 0;
    }
    return true;
  }

 private:
  static void use_keys(Region& region, const Epochs& epochs, std::uint64_t version) {
    region.keys.fill(nullptr);
    for (const Keys& device : region.described.devices) {
      if (device.epoch == epochs[device.slot]) region.keys[device.slot] = &device;
    }
    region.version = version;
  }

  std::vector<std::unique_ptr<Region>> regions_;  // by the low half of the id
  std::uint32_t next_generation_ = 1;
};

}  // namespace mc::transport
