// SPDX-License-Identifier: Apache-2.0
//
// The interface by which LocalRegions registers memory with the devices of a one-sided
//   transport, which LocalRegions knows by slot alone.
// Threads: any for register_memory(), several at once; the transport's for all else.
// Owns: a Registration owns the device's resources for the region.
#pragma once

#include <memory>

#include "transport/one_sided/region_descriptor.h"
#include "transport/region.h"

namespace mc::transport {

// The registration of memory with a device, until this object ends. The device must not end before.
struct Registration {
  virtual ~Registration() = default;

  std::uint64_t remote_key = 0;  // in the requests of peers
  std::uintptr_t local_key = 0;  // in the requests of this transport
};

class Registrar {
 public:
  virtual ~Registrar() = default;

  virtual const DescriptorFormat& format() const = 0;
  // The number of slots that may ever have a device.
  virtual std::size_t slot_count() const = 0;
  // Identifies the device that is open in the slot; null: none.
  virtual const void* device(std::size_t slot) const = 0;
  // REQUIRES: a device is open in the slot.
  virtual std::uint64_t epoch(std::size_t slot) const = 0;
  // RegionDescriptor::base of memory that begins at data.
  virtual std::uint64_t base_of(const std::byte* data) const = 0;
  // Errors: MC_UNSUPPORTED: this transport never registers memory of this kind.
  virtual Status admit(const RegionSpec& spec) const = 0;
  // Registers a range of the region. REQUIRES: a device is open in the slot until the call returns.
  // Errors: MC_NO_MEMORY (the limit of locked memory), MC_UNSUPPORTED, MC_INVALID_ARGUMENT; each
  // with the device and the remedy.
  virtual Result<std::unique_ptr<Registration>> register_memory(std::size_t slot,
                                                                const RegionSpec& spec,
                                                                const MemoryRange& range) const = 0;
};

// "; the memory is pinned …: raise it", with the present limit of locked memory.
std::string locked_memory_remedy();

}  // namespace mc::transport
