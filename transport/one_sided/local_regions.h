// SPDX-License-Identifier: Apache-2.0
//
// What it is: the memory that devices may reach: each region registered once with every open
//   device, in chunks that several threads register side by side, since a device pins about 10 to
//   40 GB a second in one thread.
//   Of a sparse region each chunk is registered as far as it has memory, beside the loop. When it
//   has got more, the former key holds until the next change, so that peers who have it are not
//   cut; when it has lost some, not a moment longer.
// Threads: the transport's. Owns the registrations, never the memory.
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
  // threads: that register a region's chunks. registrar and workers outlive this.
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
  // The rights that it had; 0: there is no such region.
  std::uint32_t remove(RegionId id);
  // The parts of a sparse region that have memory now. True: something is registered no more.
  bool back(RegionId id, std::span<const MemoryRange> ranges);
  // Why a part of it could not be registered; ok() if all was.
  Status backing(RegionId id) const;
  // A device was opened: registers every region with it, or none and says why; sparse ones beside
  // the loop.
  Status on_opened(std::size_t slot);
  // Before it is closed.
  void on_closing(std::size_t slot);

  // By its id, or by its name.
  Result<std::vector<std::byte>> describe(RegionId id) const;

  // Tells each piece the region that it lies in. False: one lies in none.
  bool find(std::span<Piece> pieces) const;
  // Registration::local_key of an address in a region that find() gave, and how many bytes it is
  // good for; 0: none.
  struct Key {
    std::uintptr_t key = 0;
    std::uint64_t bytes = 0;
  };
  Key key_of(RegionId id, std::size_t slot, const std::byte* data) const;

 private:
  // One registration, made by a thread; it ends with this unless a region has taken it.
  struct Making {
    std::unique_ptr<Registration> made;
    Status status;
    const void* device = nullptr;
  };
  // Of a chunk, under way, with the devices that have it not as it is wanted. One that is not
  // wanted any more holds no registration, since it would outlive the device.
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
    Status backing;
  };
  static MemoryRange range_of(const Region& region, std::uint64_t chunk, const Cover& cover);
  Status register_with(Region& region, std::span<const std::size_t> slots) const;
  static void deregister(Region& region, std::size_t slot);
  static bool drop(Region& region, std::uint64_t chunk);
  // Whether a device has the chunk registered as far as that.
  static bool has(const Region& region, std::size_t slot, std::uint64_t chunk, const Cover& wanted);
  void register_beside(Region& region, std::size_t slot);
  void begin(Region& region, std::uint64_t chunk, const Cover& wanted);
  void on_registered(RegionId id, std::uint64_t chunk, const std::shared_ptr<Change>& change);

  const std::uint64_t incarnation_;
  const std::uint32_t threads_;
  const Registrar& registrar_;
  Workers& workers_;
  RegionBook<Region> regions_;
};

}  // namespace mc::transport
