// SPDX-License-Identifier: Apache-2.0
//
// What it is: the memory that peers may reach: each region registered once with every domain. The
//   one place that gives rights: remote read, and remote write only where the region was registered
//   for it.
// Threads: the transport's. Owns the registrations, never the memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric/descriptor.h"
#include "transport/fabric/domain.h"
#include "transport/region_book.h"

namespace mc::transport::fabric {

// By slot; null: none.
using DomainSlots = std::array<std::unique_ptr<Domain>, kMaxDomains>;

class LocalRegions {
 public:
  LocalRegions(const FabricOptions& options, const DomainSlots& domains)
      : options_(options), domains_(domains), regions_(options.node, options.incarnation) {}

  // Errors: MC_INVALID_ARGUMENT, MC_UNSUPPORTED (memory kind), MC_BUSY (4096 regions),
  // MC_NO_MEMORY (the limit of locked memory, with the remedy).
  Result<RegionId> add(const RegionSpec& spec);
  // The rights that it had; 0: there is no such region.
  std::uint32_t remove(RegionId id);
  Result<std::vector<std::byte>> describe(RegionId id) const;

  // The region that a piece lies in; kNoRegion: in none.
  RegionId find(const Piece& piece) const { return regions_.find(piece); }
  // What a request with pieces of that region says of it. REQUIRES: find() gave it.
  void* descriptor_of(RegionId id, std::size_t slot) const;

 private:
  struct Region {
    RegionId id = kNoRegion;
    RegionSpec spec;
    std::array<Owned<fid_mr>, kMaxDomains> memory;
  };

  const FabricOptions& options_;
  const DomainSlots& domains_;
  RegionBook<Region> regions_;
};

}  // namespace mc::transport::fabric
