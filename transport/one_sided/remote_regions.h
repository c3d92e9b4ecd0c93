// SPDX-License-Identifier: Apache-2.0
//
// What it is: regions of peers, from their descriptions, with the keys that hold now. Keys are of
//   a device as it was opened once: when the peer's device was opened again, or a key did not hold,
//   the region's keys are asked for over the link, and operations wait for them.
// Threads: the transport's. Owns the descriptions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/one_sided/region_descriptor.h"
#include "transport/transport.h"

namespace mc::transport {

struct RemoteRegion {
  RemoteRegionId id = 0;
  PeerId peer = kNoPeer;
  std::uint64_t asked_as = 0;  // its id at the peer, or the name that it was imported by
  bool known = true;           // described holds what the peer said, as far as we know
  RegionDescriptor described;
  // By the peer's slots; null where no key holds. Valid for a version of the peer's epochs.
  std::array<const RegionKeys*, kMaxDeviceSlots> keys{};
  std::uint64_t version = 0;
  std::uint64_t asked_version = 0;  // for which the peer was asked for keys
  bool asking = false;
  std::uint64_t ask_again_ns = 0;  // what was not registered may be by then
  bool doubted = false;            // a key of it did not hold
  bool gone = false;

  bool allows(Verb verb) const {
    return (described.rights & (verb == Verb::kRead ? kRemoteRead : kRemoteWrite)) != 0;
  }
  // Whether the peer's device of that slot has keys for all of a range that is registered.
  bool has_keys(std::size_t slot, std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
};

class RemoteRegions {
 public:
  // Of a peer's devices, by slot; 0: not there now.
  using Epochs = std::array<std::uint64_t, kMaxDeviceSlots>;

  explicit RemoteRegions(const DescriptorFormat& format) : format_(format) {}

  // Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  Result<RemoteRegionId> import(PeerId peer, std::span<const std::byte> text);
  // By a name that the peer gave it: not known until the peer has described it. Errors: MC_BUSY.
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name);

  RemoteRegion* find(RemoteRegionId id) {
    const std::uint64_t index = (id & 0xffffffffu) - 1;
    return index < regions_.size() && regions_[index] && regions_[index]->id == id
               ? regions_[index].get()
               : nullptr;
  }
  // Whether a read or a write of so many bytes may go there, as far as is known. kDone: it may.
  Outcome admit(const Operation& operation, std::uint64_t size_bytes);
  void forget(PeerId peer);
  // The keys of a region did not hold, or less is registered than is wanted: it is asked for anew
  // before it is ready again.
  static void doubt(RemoteRegion& region);

  enum class State { kReady, kMustAsk, kWaits, kGone };
  // Whether operations may use it. version: of the peer's epochs; never 0.
  static State check(RemoteRegion& region, const Epochs& epochs, std::uint64_t version);
  // Whether a read of that range could leave at once, by any of the peer's devices in slots (bits).
  // What is not registered yet is asked for again after a second. kGone is not told from kWaits.
  static State check_range(RemoteRegion& region, const Epochs& epochs, std::uint64_t version,
                           std::uint64_t slots, std::uint64_t offset_bytes,
                           std::uint64_t size_bytes, std::uint64_t now_ns);
  // What the peer answered; no text: the region is gone. False: it breaks the contract.
  bool on_description(PeerId peer, RegionId id, std::span<const std::byte> text);

 private:
  Result<RemoteRegion*> add(PeerId peer);

  const DescriptorFormat format_;
  std::vector<std::unique_ptr<RemoteRegion>> regions_;  // by the low half of the id
  std::uint32_t next_generation_ = 1;
};

}  // namespace mc::transport
