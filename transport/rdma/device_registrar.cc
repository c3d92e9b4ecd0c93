// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/device_registrar.h"

#include <cerrno>
#include <string>

#include "libmc/base/fd.h"

namespace mc::transport::rdma {

namespace {

struct Memory final : Registration {
  Memory(const Device& of, ibv_mr* made) : device(of), memory(made) {
    remote_key = made->rkey;
    local_key = made->lkey;
  }
  ~Memory() override { static_cast<void>(device.verbs().dereg_mr(memory)); }

  const Device& device;
  ibv_mr* const memory;
};

Status why_not_registered(const RegionSpec& spec, const MemoryRange& range, const Device& device,
                          int error) {
  std::string text = errno_text(
      "register " + std::to_string(range.size_bytes) + " bytes with RDMA device " + device.name(),
      error);
  if (spec.kind == MemoryKind::kDevice) {
    return {MC_UNSUPPORTED,
            text + (spec.fd >= 0 ? "; the driver of this device cannot take a DMA-BUF: load "
                                   "nvidia-peermem and register without one"
                                 : "; load nvidia-peermem, or hand in a DMA-BUF of the memory")};
  }
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    return {MC_NO_MEMORY, text + locked_memory_remedy()};
  }
  return {MC_INVALID_ARGUMENT, text + "; it must be mapped, and writable"};
}

}  // namespace

Status DeviceRegistrar::admit(const RegionSpec& spec) const {
  if (spec.kind != MemoryKind::kFile) return {};
  return {MC_UNSUPPORTED, "the rdma transport reads and writes memory, not files"};
}

unsigned DeviceRegistrar::access_of(const RegionSpec& spec, const Device& device) const {
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  if ((spec.rights & kRemoteRead) != 0) access |= IBV_ACCESS_REMOTE_READ;
  if ((spec.rights & kRemoteWrite) != 0) access |= IBV_ACCESS_REMOTE_WRITE;
  if (options_.relaxed_ordering) access |= IBV_ACCESS_RELAXED_ORDERING;
  if (device.faults_pages() && spec.kind == MemoryKind::kHost) access |= IBV_ACCESS_ON_DEMAND;
  return access;
}

Result<std::unique_ptr<Registration>> DeviceRegistrar::register_memory(
    std::size_t slot, const RegionSpec& spec, const MemoryRange& range) const {
  const Device& device = *devices_[slot];
  const unsigned access = access_of(spec, device);
  std::byte* const data = spec.data + range.offset_bytes;
  errno = 0;
  ibv_mr* const made =
      spec.kind == MemoryKind::kDevice && spec.fd >= 0
          ? device.verbs().reg_dmabuf_mr(device.domain(), range.offset_bytes, range.size_bytes,
                                         reinterpret_cast<std::uint64_t>(data), spec.fd,
                                         access & ~unsigned{IBV_ACCESS_RELAXED_ORDERING})
          : device.verbs().reg_mr(device.domain(), data, range.size_bytes, access);
  if (made == nullptr) {
    return fail(why_not_registered(spec, range, device, errno != 0 ? errno : EIO));
  }
  return std::make_unique<Memory>(device, made);
}

}  // namespace mc::transport::rdma
