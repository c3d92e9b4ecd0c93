// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that looks after memory which peers reach.
#include <algorithm>
#include <cstring>
#include <string>

#include "libmc/base/clock.h"
#include "transport/engine/engine.h"
#include "transport/engine/local/local_memory.h"

namespace mc::transfer {

namespace {
// A transport cuts a lane that holds a slice for longer than kMaxPinNs.
constexpr std::uint64_t kReleaseNs = transport::kMaxPinNs + 1'000'000'000;
constexpr std::uint64_t kLookNs = 2'000'000;
constexpr std::uint64_t kLongestChunkNs = 1'000'000'000;
}  // namespace

void Engine::publish_regions() {
  std::vector<DirectoryEntry> entries;
  entries.reserve(regions_.size());
  for (const auto& [address, region] : regions_) {
    entries.push_back({address, region.size_bytes, region.rights,
                       region.order | (region.staged ? kByOwnerOnly : 0), region.descriptor});
  }
  directory_->publish(entries);
}

// The registration that holds the whole range; null: none does.
const Engine::Region* Engine::region_of(const std::byte* data, std::uint64_t size_bytes) const {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  const auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const auto& [start, region] = *std::prev(after);
  const bool inside =
      size_bytes <= region.size_bytes && address - start <= region.size_bytes - size_bytes;
  return inside ? &region : nullptr;
}

Status Engine::register_memory(std::span<const mc_transfer_range> ranges, std::uint32_t rights) {
  if (ranges.empty() || rights == 0 || (rights & ~transport::kKnownRights) != 0) {
    return {
        MC_INVALID_ARGUMENT,
        "to register memory say ranges and rights: MC_TRANSFER_READ, MC_TRANSFER_WRITE or both"};
  }
  Lock lock = lock_in();
  if (ranges.size() > MC_MAX_TRANSFER_REGIONS - regions_.size()) {
    return {MC_BUSY,
            "an engine has at most 4095 regions (MC_MAX_TRANSFER_REGIONS); register few "
            "large ranges"};
  }
  std::vector<std::uint64_t> added;
  Status status;
  for (const mc_transfer_range& range : ranges) {
    const auto address = reinterpret_cast<std::uint64_t>(range.address);
    if (address == 0 || range.size == 0 || range.size > MC_MAX_OBJECT_BYTES ||
        range.size > ~std::uint64_t{0} - address) {
      status = {MC_INVALID_ARGUMENT, "a range has an address and 1 B to 1 TiB"};
      break;
    }
    const auto next = regions_.lower_bound(address);
    const bool overlaps = (next != regions_.end() && next->first < address + range.size) ||
                          (next != regions_.begin() &&
                           std::prev(next)->first + std::prev(next)->second.size_bytes > address);
    if (overlaps) {
      status = {MC_INVALID_ARGUMENT, "the range overlaps one that is registered already"};
      break;
    }
    const auto device = device_range(range);
    if (!device) {
      status = device.error();
      break;
    }
    std::unique_ptr<StagedRegion> staged;
    if (device->device != DeviceDriver::kHost) {
      auto made = StagedRegion::make(*device, &device_bytes_);
      if (!made) {
        status = made.error();
        break;
      }
      staged = std::move(*made);
    }
    transport::RegionSpec spec;
    spec.data = staged ? staged->data() : static_cast<std::byte*>(range.address);
    spec.size_bytes = range.size;
    spec.rights = rights;
    spec.guard = staged.get();
    auto region = transport_->register_region(spec);
    if (!region) {
      status = region.error();
      break;
    }
    const bool writable = !staged && is_memory(range.address, range.size, true);
    const bool readable = writable || (!staged && is_memory(range.address, range.size, false));
    Region row{range.size, rights, next_order_++,    *region, readable,
               writable,   {},     std::move(staged)};
    const auto text = transport_->describe(*region);
    if (text && text->size() == kRegionTextBytes) {
      std::memcpy(row.descriptor.data(), text->data(), kRegionTextBytes);
    }
    regions_.emplace(address, std::move(row));
    added.push_back(address);
  }
  if (!status.ok()) {
    // Nobody has been told of them yet.
    for (const std::uint64_t address : added) {
      static_cast<void>(transport_->close_region(regions_.at(address).id));
      regions_.erase(address);
    }
    return status;
  }
  publish_regions();
  return {};
}

Status Engine::unregister_memory(std::span<void* const> addresses) {
  Lock lock = lock_in();
  std::vector<std::pair<std::uint64_t, Region>> gone;
  for (void* const address : addresses) {
    const auto at = regions_.find(reinterpret_cast<std::uint64_t>(address));
    if (at == regions_.end()) continue;
    gone.emplace_back(at->first, std::move(at->second));
    regions_.erase(at);
  }
  if (gone.empty()) return {MC_NOT_FOUND, "no memory is registered at that address"};
  publish_regions();
  for (const auto& [address, region] : gone) {
    release_local(lock, reinterpret_cast<const std::byte*>(address), region.size_bytes);
  }
  // Slices that are being sent or received end first; the transport bounds their time.
  const std::uint64_t deadline_ns = now_ns() + kReleaseNs;
  for (auto& [address, region] : gone) {
    while (!transport_->close_region(region.id)) {
      if (now_ns() >= deadline_ns) {
        // The transport goes on to use pages that stand for a device's.
        for (auto& each : gone) static_cast<void>(each.second.staged.release());
        return {MC_INTERNAL, "a peer holds memory beyond its time"};
      }
      std::condition_variable nobody;
      static_cast<void>(wait_until(lock, nobody, now_ns() + kLookNs, [] { return false; }));
    }
  }
  if (gone.size() < addresses.size()) {
    return {MC_NOT_FOUND, "some of the addresses were not registered; the others are not any more"};
  }
  return {};
}

// Ends our own requests that read or write local memory in the range.
void Engine::release_local(Lock& lock, const std::byte* data, std::uint64_t size_bytes) {
  const Status why(MC_CANCELLED, "its local memory was unregistered");
  for (std::size_t slot = 0; slot < batches_.size(); ++slot) {
    Batch* const batch = batches_[slot].get();
    if (batch == nullptr || batch->ended()) continue;
    std::vector<std::uint32_t> hit;
    for (std::uint32_t i = 0; i < batch->requests.size(); ++i) {
      Request& request = batch->requests[i];
      if (request.state == Request::State::kEnded || request.local == nullptr ||
          request.callers() >= data + size_bytes ||
          request.callers() + request.size_bytes <= data) {
        continue;
      }
      hit.push_back(i);
      cancel(*batch, request, why);
    }
    if (hit.empty()) continue;
    ++batch->users;
    static_cast<void>(
        wait_until(lock, batch->changed, now_ns() + transport::kPeerLostNs + kLongestChunkNs, [&] {
          return std::ranges::all_of(hit, [&](std::uint32_t i) {
            return batch->requests[i].state == Request::State::kEnded;
          });
        }));
    leave(*batch);
  }
}

// ---- Memory of devices ------------------------------------------------------------------------

Result<DeviceRange> Engine::device_range(const mc_transfer_range& range) {
  const DeviceDriver* const driver = DeviceDriver::find();
  DeviceRange found{driver, DeviceDriver::kHost, static_cast<std::byte*>(range.address),
                    range.size};
  if (driver == nullptr) return found;
  const auto device = driver->device_of(range.address, range.size);
  if (!device) return fail(device.error());
  found.device = *device;
  return found;
}

// Before its requests start, without the lock: copies take time. All or none.
Status Engine::stage(Batch& batch) {
  if (DeviceDriver::found() == nullptr) return {};
  for (Request& request : batch.requests) {
    const Status staged = stage(request);
    if (staged.ok()) continue;
    for (Request& other : batch.requests) {
      if (other.staged) staged_bytes_.fetch_sub(other.size_bytes, std::memory_order_relaxed);
    }
    return staged;
  }
  return {};
}

Status Engine::stage(Request& request) {
  const DeviceDriver* const driver = DeviceDriver::found();
  const auto device = driver->device_of(request.local, request.size_bytes);
  if (!device) return device.error();
  if (*device == DeviceDriver::kHost) return {};
  if (staged_bytes_.fetch_add(request.size_bytes, std::memory_order_relaxed) + request.size_bytes >
      MC_MAX_TRANSFER_DEVICE_BYTES) {
    staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
    return {MC_BUSY,
            "1 GiB of device memory is on its way (MC_MAX_TRANSFER_DEVICE_BYTES); submit less at "
            "once"};
  }
  auto made =
      StagedRequest::make({driver, *device, request.local, request.size_bytes}, request.write);
  if (!made) {
    staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
    return made.error();
  }
  request.staged = std::move(*made);
  request.local = request.staged->data();
  return {};
}

// Nothing touches its local memory any more: what was read goes to the device.
Status Engine::unstage(Request& request) {
  Status status;
  if (request.status == MC_OK) {
    if (!request.write) status = request.staged->to_device();
    if (status.ok()) device_bytes_ += request.size_bytes;
  }
  staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
  request.local = nullptr;
  request.staged.reset();
  return status;
}

}  // namespace mc::transfer
