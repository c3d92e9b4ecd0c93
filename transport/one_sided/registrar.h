// SPDX-License-Identifier: Apache-2.0
//
// What it is: how LocalRegions gets memory registered: by the devices of a one-sided transport,
//   which it knows by their slots alone.
// Threads: register_memory(): any, several at once; all else is the transport's.
// Owns: a Registration owns what the device holds.
#pragma once

#include <memory>

#include "transport/one_sided/region_descriptor.h"
#include "transport/region.h"

namespace mc::transport {

// Memory as a device knows it, until this object ends; the device must not end before.
struct Registration {
  virtual ~Registration() = default;

  std::uint64_t remote_key = 0;  // by which peers name it
  std::uintptr_t local_key = 0;  // by which requests of this transport name it
};

class Registrar {
 public:
  virtual ~Registrar() = default;

  virtual const DescriptorFormat& format() const = 0;
  // Slots that may ever have a device.
  virtual std::size_t slot_count() const = 0;
  // Names the device that is open there now; null: none.
  virtual const void* device(std::size_t slot) const = 0;
  // REQUIRES: a device is open there.
  virtual std::uint64_t epoch(std::size_t slot) const = 0;
  // RegionDescriptor::base of memory that begins there.
  virtual std::uint64_t base_of(const std::byte* data) const = 0;
  // Errors: MC_UNSUPPORTED: such memory is never registered.
  virtual Status admit(const RegionSpec& spec) const = 0;
  // A range of the region. REQUIRES: a device is open there, until this has returned. Errors:
  // MC_NO_MEMORY (the limit of locked memory), MC_UNSUPPORTED, MC_INVALID_ARGUMENT; each with the
  // device and the remedy.
  virtual Result<std::unique_ptr<Registration>> register_memory(std::size_t slot,
                                                                const RegionSpec& spec,
                                                                const MemoryRange& range) const = 0;
};

// "; the memory is pinned …: raise it", with the limit of locked memory as it is now.
std::string locked_memory_remedy();

}  // namespace mc::transport
