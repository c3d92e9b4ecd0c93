// SPDX-License-Identifier: Apache-2.0
//
// Memory registered with domains of libfabric. This is the only place that gives
//   rights: remote read, and remote write only for regions registered for remote writing.
// Threads: as Registrar.
#pragma once

#include <memory>
#include <vector>

#include "transport/fabric/domain.h"
#include "transport/one_sided/registrar.h"

namespace mc::transport::fabric {

// By slot, a slot for each domain of the provider; null: not open now.
using DomainSlots = std::vector<std::unique_ptr<Domain>>;

class DomainRegistrar final : public Registrar {
 public:
  explicit DomainRegistrar(const DomainSlots& domains) : domains_(domains) {}

  const DescriptorFormat& format() const override { return kDescriptorFormat; }
  std::size_t slot_count() const override { return domains_.size(); }
  const void* device(std::size_t slot) const override { return domains_[slot].get(); }
  std::uint64_t epoch(std::size_t slot) const override { return domains_[slot]->epoch(); }
  std::uint64_t base_of(const std::byte* data) const override;
  Status admit(const RegionSpec& spec) const override;
  Result<std::unique_ptr<Registration>> register_memory(std::size_t slot, const RegionSpec& spec,
                                                        const MemoryRange& range) const override;

 private:
  const DomainSlots& domains_;
};

}  // namespace mc::transport::fabric
