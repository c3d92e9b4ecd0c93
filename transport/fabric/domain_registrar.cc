// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/domain_registrar.h"

#include <algorithm>

namespace mc::transport::fabric {

namespace {

struct Memory final : Registration {
  explicit Memory(Owned<fid_mr> made) : memory(std::move(made)) {
    remote_key = fi_mr_key(memory.get());
    local_key = reinterpret_cast<std::uintptr_t>(fi_mr_desc(memory.get()));
  }
  const Owned<fid_mr> memory;
};

}  // namespace

std::uint64_t DomainRegistrar::base_of(const std::byte* data) const {
  // All domains are of the same provider.
  const auto open = std::ranges::find_if(domains_, [](const auto& at) { return at != nullptr; });
  return open != domains_.end() ? (*open)->base_of(data) : 0;
}

Status DomainRegistrar::admit(const RegionSpec& spec) const {
  if (spec.kind == MemoryKind::kHost) return {};
  return {MC_UNSUPPORTED,
          spec.kind == MemoryKind::kDevice
              ? "the fabric transport reaches host memory only; for device memory use the "
                "rdma transport, or copy to host memory first"
              : "the fabric transport reads and writes memory, not files"};
}

Result<std::unique_ptr<Registration>> DomainRegistrar::register_memory(
    std::size_t slot, const RegionSpec& spec, const MemoryRange& range) const {
  std::uint64_t access = FI_READ | FI_WRITE;
  if ((spec.rights & kRemoteRead) != 0) access |= FI_REMOTE_READ;
  if ((spec.rights & kRemoteWrite) != 0) access |= FI_REMOTE_WRITE;
  auto made =
      domains_[slot]->register_memory(spec.data + range.offset_bytes, range.size_bytes, access);
  if (!made) return fail(made.error());
  return std::make_unique<Memory>(std::move(*made));
}

}  // namespace mc::transport::fabric
