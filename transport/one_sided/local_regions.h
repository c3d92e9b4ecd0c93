// SPDX-License-Identifier: Apache-2.0
//
// The memory that devices may reach. Each region is registered once with every open
//   device, in chunks. Several threads register chunks side by side, since one thread pins about 10
//   to 40 GB a second.
//   Each chunk of a sparse region is registered beside the loop, as far as the chunk has memory.
//   When a chunk has got more memory, the former key holds until the next change, so that peers
//   with that key keep their access. When a chunk has lost memory, the key ends at once.
// Threads: the transport's.
// Owns: the registrations, never the memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/flow/workers.h"
#include "transport/one_sided/region_book.h"
#include "transport/one_sided/registrar.h"
#include "transport/transport.h"

namespace mc::transport {

class LocalRegions {
 public:
  // threads: the number of threads that register a region. registrar and workers outlive this
  // object.
  LocalRegions(NodeId node, std::uint64_t incarnation, std::uint32_t threads,
               const Registrar& registrar, Workers& workers)
      : incarnation_(incarnation),
        threads_(threads),
        registrar_(registrar),
        workers_(workers),
        regions_(node, incarnation) {}

  // Errors: MC_INVALID_ARGUMENT, MC_UNSUPPORTED (memory kind), MC_BUSY (4096 regions),
  // MC_NO_MEMORY (the limit of locked memory, with the remedy).
  Result<RegionId> add(const RegionSpec& spec);
  // From now on nothing begins with the region. Its registrations end beside the loop, since a device needs
  // milliseconds for each GiB. False: some have not ended, and peers may still reach the memory; call again.
  bool close(RegionId id);
  // Whether the region exists, or has registrations that have not ended.
  bool knows(RegionId id) const { return regions_.at(id) != nullptr || ending_.contains(id); }
  // Sets the parts of a sparse region that have memory now. True: a part is no longer registered.
  bool back(RegionId id, std::span<const MemoryRange> ranges);
  // Why a part of the region could not be registered; ok() if all parts were. MC_BUSY: registrations are under
  // way.
  Status backing(RegionId id) const;
  // To be called after a device was opened. Registers all regions with the device, or none and
  // returns why; sparse regions are registered beside the loop.
  Status on_opened(std::size_t slot);
  // To be called before the device is closed.
  void on_closing(std::size_t slot);

  // region: id or name.
  Result<std::vector<std::byte>> describe(RegionId id) const;

  // Sets the region of each piece. False: a piece lies in no region.
  bool find(std::span<Piece> pieces) const;
  // Whether each piece lies in a region. The regions of the pieces do not count.
  bool holds(std::span<const Piece> pieces) const;
  // Registration::local_key of an address in a region that find() set, and the number of bytes that
  // the key covers; 0: no key.
  struct Key {
    std::uintptr_t key = 0;
    std::uint64_t bytes = 0;
  };
  Key key_of(RegionId id, std::size_t slot, const std::byte* data) const;

 private:
  // A registration that a thread makes. The registration ends with this object unless a region
  // takes the registration.
  struct Making {
    std::unique_ptr<Registration> made;
    Status status;
    const void* device = nullptr;
  };
  // A change of a chunk that is under way, with the devices that lack the wanted registration. A
  // change that is no longer wanted holds no registration, which would outlive the device.
  struct Change {
    void abandon() { makings = {}; }

    Cover wanted;
    std::array<std::shared_ptr<Making>, kMaxDeviceSlots> makings;  // by slot
    std::uint32_t open_count = 0;
  };
  using Registered = std::unique_ptr<Registration>;
  struct Region {
    RegionId id = kNoRegion;
    RegionSpec spec;
    std::uint32_t chunk_shift = 30;
    std::vector<Cover> covers;                                                // by chunk
    std::array<std::vector<Registered>, kMaxDeviceSlots> registered;          // by slot and chunk
    std::array<std::map<std::uint64_t, Registered>, kMaxDeviceSlots> former;  // by slot; of chunks
    std::map<std::uint64_t, std::shared_ptr<Change>> changes;                 // of chunks
    std::size_t makings_open = 0;
    Status backing;
  };
  static MemoryRange range_of(const Region& region, std::uint64_t chunk, const Cover& cover);
  Status register_with(Region& region, std::span<const std::size_t> slots) const;
  static void deregister(Region& region, std::size_t slot);
  void end_beside(RegionId id, std::size_t slot, Registered registered);
  static bool drop(Region& region, std::uint64_t chunk);
  // Whether the device's registration of the chunk covers the wanted part.
  static bool has(const Region& region, std::size_t slot, std::uint64_t chunk, const Cover& wanted);
  void register_beside(Region& region, std::size_t slot);
  void begin(Region& region, std::uint64_t chunk, const Cover& wanted);
  void on_made(RegionId id, std::uint64_t chunk, std::size_t slot, Making& making,
               const std::shared_ptr<Change>& change);
  void on_registered(RegionId id, std::uint64_t chunk, const std::shared_ptr<Change>& change);

  const std::uint64_t incarnation_;
  const std::uint32_t threads_;
  const Registrar& registrar_;
  Workers& workers_;
  RegionBook<Region> regions_;
  std::map<RegionId, std::size_t> ending_;  // how many registrations end beside the loop
};

}  // namespace mc::transport
