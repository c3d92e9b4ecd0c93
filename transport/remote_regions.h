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
    std::uint64_t asked_as = 0;  // its id at the peer, or the name that it was imported by
    bool known = true;           // described holds what the peer said, as far as we know
    Description described;
    // Null where no key holds. Valid for a version of the peer's epochs.
    std::array<const Keys*, kDeviceCount> keys{};
    std::uint64_t version = 0;
    std::uint64_t asked_version = 0;  // for which the peer was asked for keys
    bool asking = false;
    std::uint64_t ask_again_ns = 0;  // what was not registered may be by then
    bool doubted = false;            // a key of it did not hold
    bool gone = false;
  };

  // Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  Result<RemoteRegionId> import(PeerId peer, std::span<const std::byte> text) {
    auto described = Description::decode(text);
    if (!described) {
      return fail(MC_INVALID_ARGUMENT, "this does not describe a region of a peer that speaks " +
                                           std::string(Description::kTransport));
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
  // By a name that the peer gave it: not known until the peer has described it. Errors: MC_BUSY.
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name) {
    for (const auto& region : regions_) {
      if (region && region->peer == peer && region->asked_as == name) return region->id;
    }
    auto added = add(peer);
    if (!added) return fail(added.error());
    (*added)->asked_as = name;
    (*added)->known = false;
    return (*added)->id;
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
      if (!region || region->peer != peer || region->asked_as != id) continue;
      region->asking = false;
      if (text.empty()) {
        region->gone = true;
        return true;
      }
      auto described = Description::decode(text);
      // By a name, it is the first time that its id is heard; and the peer may have made it anew.
      const bool named = region->asked_as != region->described.region;
      if (!described || (!named && described->region != id)) return false;
      region->described = std::move(*described);
      region->known = true;
      region->version = 0;
    }
    return true;
  }

 private:
  Result<Region*> add(PeerId peer) {
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
    regions_[free] = std::make_unique<Region>();
    regions_[free]->id = (std::uint64_t{next_generation_++} << 32) | (free + 1);
    regions_[free]->peer = peer;
    return regions_[free].get();
  }
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
