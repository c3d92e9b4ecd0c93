// SPDX-License-Identifier: Apache-2.0
//
// The memory that peers may reach: registrations by address, and the region table
//   (wire/directory.h) that shows the registrations to peers.
// Threads: under the engine's lock.
// Owns: the registrations with the transport and the memory of the region table.
// Trusts: callers name memory of this process; ranges, rights and overlaps are checked.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mc/transfer.h"
#include "transport/engine/local/device_staging.h"
#include "transport/engine/wire/directory.h"
#include "transport/transport.h"

namespace mc::transfer {

// Registers memory of the engine's own and returns the region's description. Errors: the transport's.
Result<RegionText> register_own(transport::Transport& transport, const transport::RegionSpec& spec);

class MemoryRegistry {
 public:
  struct Registration {
    std::uint64_t address;
    std::uint64_t size_bytes;
    std::uint32_t rights;
    std::uint32_t order;
    transport::RegionId id;
    // Access of this process, judged by the first and the last page.
    bool readable;
    bool writable;
    RegionText descriptor;
    std::unique_ptr<StagedRegion> staged;  // null: host memory
    std::string location;                  // of the memory, as the caller says; empty: unknown
  };

  explicit MemoryRegistry(DeviceStaging& devices) : devices_(devices) {}

  // Registers the region table for remote reads and enters the table's place into `own`.
  Status start(transport::Transport& transport, EngineDescriptor* own);

  // Registers all ranges or none. location: "cpu:0", "cuda:3"; empty: unknown. Errors: see
  // mc_transfer_register().
  Status add(std::span<const mc_transfer_range> ranges, std::uint32_t rights,
             const std::string& location);
  // Takes the registrations at these addresses out of the region table. Peers may still be served
  // from the memory until close() succeeds.
  std::vector<Registration> remove(std::span<void* const> addresses);
  // False: the transport still serves a request from the memory.
  bool close(const Registration& registration);
  // The registration that contains the whole range; null: none does.
  const Registration* find(const std::byte* data, std::uint64_t size_bytes) const {
    return find(reinterpret_cast<std::uint64_t>(data), size_bytes);
  }
  const Registration* find(std::uint64_t address, std::uint64_t size_bytes) const;
  std::size_t count() const { return by_address_.size(); }
  // The location of an address: of the registration, or "cpu:N" by the address's page.
  std::string place_of(const std::byte* data) const;

 private:
  Result<Registration> make(const mc_transfer_range& range, std::uint32_t rights,
                            const std::string& location);
  void publish();

  DeviceStaging& devices_;
  transport::Transport* transport_ = nullptr;
  std::unique_ptr<DirectoryWriter> directory_;
  std::map<std::uint64_t, Registration> by_address_;
  std::uint32_t next_order_ = 1;
};

}  // namespace mc::transfer
