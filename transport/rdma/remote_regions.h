// SPDX-License-Identifier: Apache-2.0
//
// What it is: regions of peers, from their descriptions, with the keys that hold now. Keys are of
//   a device as it was opened once: when the peer's device was opened again, the region's keys for
//   it are asked for over the link, and operations wait for them.
// Threads: the transport's. Owns the descriptions.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/rdma/descriptor.h"
#include "transport/transport.h"

namespace mc::transport::rdma {

// Of a peer's devices, by slot; 0: not there now.
using DeviceEpochs = std::array<std::uint64_t, kMaxDevices>;

struct RemoteRegion {
  RemoteRegionId id = 0;
  PeerId peer = kNoPeer;
  std::uint64_t asked_as = 0;  // its id at the peer, or the name that it was imported by
  bool known = true;           // described holds what the peer said, as far as we know
  RegionDescriptor described;
  // Null where no key holds. Valid for a version of the peer's epochs.
  std::array<const std::uint32_t*, kMaxDevices> keys{};
  std::uint64_t version = 0;
  std::uint64_t asked_version = 0;  // for which the peer was asked for keys
  bool asking = false;
  std::uint64_t ask_again_ns = 0;  // what was not registered may be by then
  bool gone = false;

  // Whether the peer said that this is registered, and with a key for its device.
  bool covers(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
  bool has_keys(std::size_t slot, std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
};

class RemoteRegions {
 public:
  // Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  Result<RemoteRegionId> import(PeerId peer, std::span<const std::byte> text);
  // Not known until the peer has described it.
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name);
  RemoteRegion* find(RemoteRegionId id) {
    const std::uint64_t index = (id & 0xffffffffu) - 1;
    return index < regions_.size() && regions_[index] && regions_[index]->id == id
               ? regions_[index].get()
               : nullptr;
  }
  void forget(PeerId peer);

  enum class State { kReady, kMustAsk, kWaits, kGone };
  // version: of the peer's epochs; never 0.
  static State check(RemoteRegion& region, const DeviceEpochs& epochs, std::uint64_t version);
  // What the peer answered; no text: the region is gone. False: it breaks the contract.
  bool on_description(PeerId peer, RegionId region, std::span<const std::byte> text);

 private:
  Result<RemoteRegion*> add(PeerId peer);
  static void use_keys(RemoteRegion& region, const DeviceEpochs& epochs, std::uint64_t version);

  std::vector<std::unique_ptr<RemoteRegion>> regions_;  // by the low half of the id
  std::uint32_t next_generation_ = 1;
};

}  // namespace mc::transport::rdma
