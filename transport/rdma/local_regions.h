// SPDX-License-Identifier: Apache-2.0
//
// What it is: the memory that devices may reach: each region registered once with every open
//   device, in chunks that several threads register side by side, since a device pins about 10 to
//   40 GB a second in one thread. The one place that gives rights: remote read, and remote write
//   only where the region was registered for it.
// Threads: the transport's. Owns the registrations, never the memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/rdma/descriptor.h"
#include "transport/rdma/device.h"
#include "transport/region_book.h"
#include "transport/transport.h"

namespace mc::transport::rdma {

// By slot; null: not open now.
using DeviceSlots = std::array<std::unique_ptr<Device>, kMaxDevices>;

class LocalRegions {
 public:
  LocalRegions(const RdmaOptions& options, const DeviceSlots& devices);
  ~LocalRegions();

  // Errors: MC_INVALID_ARGUMENT, MC_UNSUPPORTED (memory kind), MC_BUSY (4096 regions),
  // MC_NO_MEMORY (the limit of locked memory, with the remedy).
  Result<RegionId> add(const RegionSpec& spec);
  void remove(RegionId id);
  // A device was opened: registers every region with it, or none and says why.
  Status on_opened(std::size_t slot);
  // Before it is closed.
  void on_closing(std::size_t slot);

  Result<std::vector<std::byte>> describe(RegionId id) const;

  // The region that a piece lies in; kNoRegion: in none.
  RegionId find(const Piece& piece) const { return regions_.find(piece); }
  // The local key of an address in a region that find() gave, and how many bytes it is good for.
  struct Key {
    std::uint32_t key = 0;
    std::uint64_t bytes = 0;
  };
  Key key_of(RegionId id, std::size_t slot, const std::byte* data) const;

 private:
  struct Region {
    RegionId id = kNoRegion;
    RegionSpec spec;
    std::uint32_t chunk_shift = 30;
    std::array<std::vector<ibv_mr*>, kMaxDevices> keys;  // by slot and chunk
  };
  unsigned access_of(const Region& region, const Device& device) const;
  Status register_with(Region& region, std::span<const std::size_t> slots) const;
  void deregister(Region& region, std::size_t slot) const;

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
  RegionBook<Region> regions_;
};

}  // namespace mc::transport::rdma
