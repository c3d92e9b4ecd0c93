// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/local_regions.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "libmc/base/fd.h"

namespace mc::transport::rdma {

namespace {

std::string locked_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "none" : std::to_string(limit.rlim_cur) + " bytes";
}

}  // namespace

Status LocalRegions::why_not_registered(const RegionSpec& spec, const Device& device, int error) {
  std::string text = errno_text(
      "register " + std::to_string(spec.size_bytes) + " bytes with RDMA device " + device.name(),
      error);
  if (spec.kind == MemoryKind::kDevice) {
    return {MC_UNSUPPORTED,
            text + (spec.fd >= 0 ? "; the driver of this device cannot take a DMA-BUF: load "
                                   "nvidia-peermem and register without one"
                                 : "; load nvidia-peermem, or hand in a DMA-BUF of the memory")};
  }
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    return {MC_NO_MEMORY, text + "; the memory is pinned, and the limit of locked memory is " +
                              locked_memory_limit() +
                              ": raise it (LimitMEMLOCK=infinity in the unit, ulimit -l "
                              "unlimited), or use a smaller pool"};
  }
  return {MC_INVALID_ARGUMENT, text + "; it must be mapped, and writable"};
}

LocalRegions::LocalRegions(const RdmaOptions& options, const DeviceSlots& devices, Opener& opener)
    : options_(options),
      devices_(devices),
      opener_(opener),
      regions_(options.node, options.incarnation) {}

LocalRegions::~LocalRegions() {
  for (auto& region : regions_.rows()) {
    for (std::size_t slot = 0; region && slot < kMaxDevices; ++slot) deregister(*region, slot);
  }
}

Result<RegionId> LocalRegions::add(const RegionSpec& spec) {
  if (Status status = regions_.admit(spec); !status.ok()) return fail(std::move(status));
  if (spec.kind == MemoryKind::kFile) {
    return fail(MC_UNSUPPORTED, "the rdma transport reads and writes memory, not files");
  }
  auto region = std::make_unique<Region>();
  region->spec = spec;
  // For as many devices as there may ever be: some may come later.
  region->chunk_shift = chunk_shift_for(spec.size_bytes, kMaxDevices);
  const std::uint64_t chunks = ((spec.size_bytes - 1) >> region->chunk_shift) + 1;
  region->covers.resize(chunks);
  for (std::uint64_t chunk = 0; chunk < chunks && !spec.sparse; ++chunk) {
    region->covers[chunk] = whole_chunk(spec.size_bytes, region->chunk_shift, chunk);
  }
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (devices_[slot]) slots.push_back(slot);
  }
  Status status = register_with(*region, slots);
  if (!status.ok()) return fail(std::move(status));
  return regions_.add(std::move(region));
}

void LocalRegions::remove(RegionId id) {
  Region* region = regions_.at(id);
  if (region == nullptr) return;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) deregister(*region, slot);
  for (const auto& [chunk, change] : region->changes) change->abandon();
  regions_.remove(id);
}

unsigned LocalRegions::access_of(const Region& region, const Device& device) const {
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  if ((region.spec.rights & kRemoteRead) != 0) access |= IBV_ACCESS_REMOTE_READ;
  if ((region.spec.rights & kRemoteWrite) != 0) access |= IBV_ACCESS_REMOTE_WRITE;
  if (options_.relaxed_ordering) access |= IBV_ACCESS_RELAXED_ORDERING;
  if (device.faults_pages() && region.spec.kind == MemoryKind::kHost) {
    access |= IBV_ACCESS_ON_DEMAND;
  }
  return access;
}

MemoryRange LocalRegions::range_of(const Region& region, std::uint64_t chunk, const Cover& cover) {
  const std::uint64_t begin = (chunk << region.chunk_shift) + cover.from * kCoverPageBytes;
  const std::uint64_t end =
      std::min((chunk << region.chunk_shift) + cover.to * kCoverPageBytes, region.spec.size_bytes);
  return {begin, end - begin};
}

ibv_mr* LocalRegions::register_range(const Region& region, const Device& device,
                                     const MemoryRange& range) const {
  const RegionSpec& spec = region.spec;
  const unsigned access = access_of(region, device);
  std::byte* const data = spec.data + range.offset_bytes;
  if (spec.kind == MemoryKind::kDevice && spec.fd >= 0) {
    return device.verbs().reg_dmabuf_mr(device.domain(), range.offset_bytes, range.size_bytes,
                                        reinterpret_cast<std::uint64_t>(data), spec.fd,
                                        access & ~unsigned{IBV_ACCESS_RELAXED_ORDERING});
  }
  return device.verbs().reg_mr(device.domain(), data, range.size_bytes, access);
}

Status LocalRegions::register_with(Region& region, std::span<const std::size_t> slots) const {
  const RegionSpec& spec = region.spec;
  const std::uint64_t chunks = region.covers.size();
  for (const std::size_t slot : slots) region.keys[slot].assign(chunks, nullptr);
  std::atomic<std::uint64_t> next{0};
  std::atomic<int> error{0};
  std::atomic<std::size_t> failed_slot{0};
  const auto work = [&] {
    for (;;) {
      const std::uint64_t job = next.fetch_add(1);
      if (job >= chunks * slots.size() || error.load() != 0) return;
      const std::size_t slot = slots[job % slots.size()];
      const std::uint64_t chunk = job / slots.size();
      if (region.covers[chunk] == Cover{}) continue;
      ibv_mr* key =
          register_range(region, *devices_[slot], range_of(region, chunk, region.covers[chunk]));
      if (key == nullptr) {
        const int cause = errno != 0 ? errno : EIO;
        int none = 0;
        if (error.compare_exchange_strong(none, cause)) failed_slot = slot;
      }
      region.keys[slot][chunk] = key;
    }
  };
  std::vector<std::thread> threads;
  const std::uint64_t wanted =
      std::min<std::uint64_t>(options_.registering_threads, chunks * slots.size());
  // What a thread would cost pays from two chunks on.
  if (chunks > 1) {
    for (std::uint64_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error.load() == 0) return {};
  for (const std::size_t slot : slots) deregister(region, slot);
  return why_not_registered(spec, *devices_[failed_slot.load()], error.load());
}

void LocalRegions::deregister(Region& region, std::size_t slot) const {
  for (ibv_mr* key : region.keys[slot]) {
    if (key != nullptr) static_cast<void>(devices_[slot]->verbs().dereg_mr(key));
  }
  region.keys[slot].clear();
  for (const auto& [chunk, key] : region.former[slot]) {
    static_cast<void>(devices_[slot]->verbs().dereg_mr(key));
  }
  region.former[slot].clear();
}

Status LocalRegions::on_opened(std::size_t slot) {
  for (auto& region : regions_.rows()) {
    if (!region) continue;
    Status status = register_with(*region, {&slot, 1});
    if (status.ok()) continue;
    on_closing(slot);
    return status;
  }
  return {};
}

void LocalRegions::on_closing(std::size_t slot) {
  for (auto& region : regions_.rows()) {
    if (!region) continue;
    deregister(*region, slot);
    for (const auto& [chunk, change] : region->changes) change->made[slot].reset();
  }
}

Result<std::vector<std::byte>> LocalRegions::describe(RegionId id) const {
  const Region* region = regions_.at(id);
  for (const auto& other : regions_.rows()) {
    if (region == nullptr && other && other->spec.name == id && id != 0) region = other.get();
  }
  if (region == nullptr) return fail(MC_INVALID_ARGUMENT, "no such region is registered");
  RegionDescriptor descriptor;
  descriptor.region = region->id;
  descriptor.incarnation = options_.incarnation;
  descriptor.base = reinterpret_cast<std::uint64_t>(region->spec.data);
  descriptor.size_bytes = region->spec.size_bytes;
  descriptor.rights = region->spec.rights;
  descriptor.chunk_shift = region->chunk_shift;
  descriptor.covers = region->covers;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (region->keys[slot].empty()) continue;
    RegionKeys keys{static_cast<std::uint8_t>(slot), devices_[slot]->epoch(), {}};
    for (const ibv_mr* key : region->keys[slot]) {
      keys.keys.push_back(key != nullptr ? key->rkey : 0);
    }
    descriptor.devices.push_back(std::move(keys));
  }
  return encode_descriptor(descriptor);
}

LocalRegions::Key LocalRegions::key_of(RegionId id, std::size_t slot, const std::byte* data) const {
  const Region* region = regions_.at(id);
  if (region == nullptr || region->keys[slot].empty()) return {};
  const auto offset = static_cast<std::uint64_t>(data - region->spec.data);
  const std::uint64_t chunk = offset >> region->chunk_shift;
  const MemoryRange range = range_of(*region, chunk, region->covers[chunk]);
  const ibv_mr* const key = region->keys[slot][chunk];
  // Before the range it wraps around.
  if (key == nullptr || offset - range.offset_bytes >= range.size_bytes) return {};
  return {key->lkey, range.offset_bytes + range.size_bytes - offset};
}

}  // namespace mc::transport::rdma
