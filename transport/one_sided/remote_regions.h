// SPDX-License-Identifier: Apache-2.0
//
// The regions of peers, from the descriptions, with the keys that hold now. A key
//   belongs to a device as it was opened. When the peer's device was opened again, or a key did not
//   hold, the requester asks for the region's keys over the link, and operations wait for the keys.
// Threads: the transport's.
// Owns: the descriptions.
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
  std::uint64_t asked_as = 0;  // the region's id at the peer, or the name
  bool known = true;           // described holds the peer's latest known answer
  RegionDescriptor described;
  // By the peer's slots; null where no key holds. Valid for one version of the peer's epochs.
  std::array<const RegionKeys*, kMaxDeviceSlots> keys{};
  std::uint64_t version = 0;
  std::uint64_t asked_version = 0;  // for which the keys were asked for
  bool asking = false;
  std::uint64_t ask_again_ns = 0;  // for parts that were not registered
  bool doubted = false;            // a key of the region did not hold
  bool gone = false;

  bool allows(Verb verb) const {
    return (described.rights & (verb == Verb::kRead ? kRemoteRead : kRemoteWrite)) != 0;
  }
  // Whether the peer's device has keys for the whole range, as far as the range is registered.
  bool has_keys(std::size_t slot, std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
};

class RemoteRegions {
 public:
  // The epochs of a peer's devices by slot; 0: the device is not there now.
  using Epochs = std::array<std::uint64_t, kMaxDeviceSlots>;

  explicit RemoteRegions(const DescriptorFormat& format) : format_(format) {}

  // Errors: MC_INVALID_ARGUMENT, MC_BUSY.
  Result<RemoteRegionId> import(PeerId peer, std::span<const std::byte> text);
  // Imports a region by name. The region is unknown until the peer describes it. Errors:
  // MC_BUSY.
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name);

  RemoteRegion* find(RemoteRegionId id) const {
    const std::uint64_t index = (id & 0xffffffffu) - 1;
    return index < regions_.size() && regions_[index] && regions_[index]->id == id
               ? regions_[index].get()
               : nullptr;
  }
  // Whether the operation may access the region, as far as is known. kDone: access is allowed.
  Outcome admit(const Operation& operation, std::uint64_t size_bytes);
  void forget(PeerId peer);
  // The keys of a region did not hold, or cover less than wanted. The region is not ready until the
  // peer has described it again.
  static void doubt(RemoteRegion& region);

  enum class State { kReady, kMustAsk, kWaits, kGone };
  // Whether operations may use the region. version: of the peer's epochs; never 0.
  static State check(RemoteRegion& region, const Epochs& epochs, std::uint64_t version);
  // Whether a read of the range could leave at once, by a device of the peer in slots (bits). Parts
  // that are not registered yet are asked for again after a second. The call returns kWaits for
  // kGone too.
  static State check_range(RemoteRegion& region, const Epochs& epochs, std::uint64_t version,
                           std::uint64_t slots, std::uint64_t offset_bytes,
                           std::uint64_t size_bytes, std::uint64_t now_ns);
  // Takes the peer's answer; no text: the region is gone. False: the answer breaks the contract.
  bool on_description(PeerId peer, RegionId id, std::span<const std::byte> text);

 private:
  Result<RemoteRegion*> add(PeerId peer);

  const DescriptorFormat format_;
  std::vector<std::unique_ptr<RemoteRegion>> regions_;  // by the low half of the id
  std::uint32_t next_generation_ = 1;
};

}  // namespace mc::transport
