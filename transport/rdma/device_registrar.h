// SPDX-License-Identifier: Apache-2.0
//
// Memory registered with RDMA devices. This is the only place that gives rights: remote
//   read, and remote write only for regions registered for remote writing.
// Threads: as Registrar.
#pragma once

#include <array>
#include <memory>

#include "transport/one_sided/registrar.h"
#include "transport/rdma/device.h"
#include "transport/rdma/message.h"

namespace mc::transport::rdma {

// By slot; null: not open now.
using DeviceSlots = std::array<std::unique_ptr<Device>, kMaxDevices>;

class DeviceRegistrar final : public Registrar {
 public:
  DeviceRegistrar(const RdmaOptions& options, const DeviceSlots& devices)
      : options_(options), devices_(devices) {}

  const DescriptorFormat& format() const override { return kDescriptorFormat; }
  std::size_t slot_count() const override { return kMaxDevices; }
  const void* device(std::size_t slot) const override { return devices_[slot].get(); }
  std::uint64_t epoch(std::size_t slot) const override { return devices_[slot]->epoch(); }
  std::uint64_t base_of(const std::byte* data) const override {
    return reinterpret_cast<std::uint64_t>(data);
  }
  Status admit(const RegionSpec& spec) const override;
  Result<std::unique_ptr<Registration>> register_memory(std::size_t slot, const RegionSpec& spec,
                                                        const MemoryRange& range) const override;

 private:
  unsigned access_of(const RegionSpec& spec, const Device& device) const;

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
};

}  // namespace mc::transport::rdma
