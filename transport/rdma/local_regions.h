// SPDX-License-Identifier: Apache-2.0
//
// What it is: the memory that devices may reach: each region registered once with every open
//   device, in chunks that several threads register side by side, since a device pins about 10 to
//   40 GB a second in one thread. The one place that gives rights: remote read, and remote write
//   only where the region was registered for it.
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

#include "transport/rdma/descriptor.h"
#include "transport/rdma/device.h"
#include "transport/rdma/opener.h"
#include "transport/region_book.h"
#include "transport/transport.h"

namespace mc::transport::rdma {

// By slot; null: not open now.
using DeviceSlots = std::array<std::unique_ptr<Device>, kMaxDevices>;

class LocalRegions {
 public:
  LocalRegions(const RdmaOptions& options, const DeviceSlots& devices, Opener& opener);
  ~LocalRegions();

  // Errors: MC_INVALID_ARGUMENT, MC_UNSUPPORTED (memory kind), MC_BUSY (4096 regions),
  // MC_NO_MEMORY (the limit of locked memory, with the remedy).
  Result<RegionId> add(const RegionSpec& spec);
  void remove(RegionId id);
  // The parts of a sparse region that have memory now.
  void back(RegionId id, std::span<const MemoryRange> ranges);
  // Why a part of it could not be registered; ok() if all was.
  Status backing(RegionId id) const;
  // A device was opened: registers every region with it, or none and says why.
  Status on_opened(std::size_t slot);
  // Before it is closed.
  void on_closing(std::size_t slot);

  // By its id, or by its name.
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
  // One registration, made by a thread; it ends with this unless a region has taken it.
  struct Registration {
    explicit Registration(const Device& of) : device(of) {}
    ~Registration() {
      if (key != nullptr) static_cast<void>(device.verbs().dereg_mr(key));
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    const Device& device;
    ibv_mr* key = nullptr;
    int error = 0;
  };
  // Of a chunk, under way. One that is not wanted any more holds no registration, since it would
  // outlive the device.
  struct Change {
    void abandon() { made = {}; }

    Cover wanted;
    std::array<std::shared_ptr<Registration>, kMaxDevices> made;  // by slot
    std::uint32_t open_count = 0;
  };
  struct Region {
    RegionId id = kNoRegion;
    RegionSpec spec;
    std::uint32_t chunk_shift = 30;
    std::vector<Cover> covers;                                         // by chunk
    std::array<std::vector<ibv_mr*>, kMaxDevices> keys;                // by slot and chunk
    std::array<std::map<std::uint64_t, ibv_mr*>, kMaxDevices> former;  // by slot; of chunks
    std::map<std::uint64_t, std::shared_ptr<Change>> changes;          // of chunks
    Status backing;
  };
  static Status why_not_registered(const RegionSpec& spec, const Device& device, int error);
  static MemoryRange range_of(const Region& region, std::uint64_t chunk, const Cover& cover);
  unsigned access_of(const Region& region, const Device& device) const;
  ibv_mr* register_range(const Region& region, const Device& device,
                         const MemoryRange& range) const;
  Status register_with(Region& region, std::span<const std::size_t> slots) const;
  void deregister(Region& region, std::size_t slot) const;
  void deregister_former(Region& region, std::size_t slot, std::uint64_t chunk) const;
  void drop(Region& region, std::uint64_t chunk) const;
  void begin(Region& region, std::uint64_t chunk, const Cover& wanted);
  void on_registered(RegionId id, std::uint64_t chunk, const std::shared_ptr<Change>& change);

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
  Opener& opener_;
  RegionBook<Region> regions_;
};

}  // namespace mc::transport::rdma
