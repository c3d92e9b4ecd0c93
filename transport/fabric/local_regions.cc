// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/local_regions.h"

namespace mc::transport::fabric {

Result<RegionId> LocalRegions::add(const RegionSpec& spec) {
  if (Status status = regions_.admit(spec); !status.ok()) return fail(std::move(status));
  if (spec.kind != MemoryKind::kHost) {
    return fail(MC_UNSUPPORTED,
                spec.kind == MemoryKind::kDevice
                    ? "the fabric transport reaches host memory only; for device memory use the "
                      "rdma transport, or copy to host memory first"
                    : "the fabric transport reads and writes memory, not files");
  }
  std::uint64_t access = FI_READ | FI_WRITE;
  if ((spec.rights & kRemoteRead) != 0) access |= FI_REMOTE_READ;
  if ((spec.rights & kRemoteWrite) != 0) access |= FI_REMOTE_WRITE;
  auto region = std::make_unique<Region>();
  region->spec = spec;
  for (std::size_t slot = 0; slot < kMaxDomains; ++slot) {
    if (!domains_[slot]) continue;
    auto memory = domains_[slot]->register_memory(spec.data, spec.size_bytes, access);
    if (!memory) return fail(memory.error());
    region->memory[slot] = std::move(*memory);
  }
  return regions_.add(std::move(region));
}

std::uint32_t LocalRegions::remove(RegionId id) {
  const Region* region = regions_.at(id);
  if (region == nullptr) return 0;
  const std::uint32_t rights = region->spec.rights;
  regions_.remove(id);
  return rights;
}

Result<std::vector<std::byte>> LocalRegions::describe(RegionId id) const {
  const Region* region = regions_.at(id);
  if (region == nullptr) return fail(MC_INVALID_ARGUMENT, "no such region is registered");
  RegionDescriptor descriptor;
  descriptor.region = id;
  descriptor.incarnation = options_.incarnation;
  descriptor.size_bytes = region->spec.size_bytes;
  descriptor.rights = region->spec.rights;
  for (std::size_t slot = 0; slot < kMaxDomains; ++slot) {
    if (!region->memory[slot]) continue;
    descriptor.devices.push_back(
        {domains_[slot]->epoch(), domains_[slot]->base_of(region->spec.data),
         fi_mr_key(region->memory[slot].get()), static_cast<std::uint32_t>(slot), 0});
  }
  return descriptor.encode();
}

void* LocalRegions::descriptor_of(RegionId id, std::size_t slot) const {
  return fi_mr_desc(regions_.at(id)->memory[slot].get());
}

}  // namespace mc::transport::fabric
