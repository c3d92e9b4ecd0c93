// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory of the host that stands for memory of a device while bytes are on the way.
//
//   StagedRequest   the local side of a request of ours: filled from the device before a write is
//                   sent, emptied to the device when a read has come
//   StagedRegion    a registered range as the transport sees it: as large as the device's, without
//                   pages. The transport pins what it serves, slice by slice: a pin for a read
//                   fills its pages, a write that has come whole is copied to the device before it
//                   is acknowledged; pages that no pin needs are given back.
//
// Threads: the engine's lock, but for what StagedRequest::make() does.
// Owns: its pages; the device's memory is the caller's, as long as it is registered or a request
//   names it. Trusts: ranges, which transport::RegionTable checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "libmc/base/device_memory.h"
#include "transport/region.h"

namespace mc::transfer {

struct DeviceRange {
  const DeviceDriver* driver = nullptr;
  int device = DeviceDriver::kHost;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
};

// Pages of zeros, taken as they are touched, given back at the end.
class HostPages {
 public:
  static Result<HostPages> reserve(std::uint64_t size_bytes);
  HostPages() = default;
  HostPages(HostPages&& other) noexcept { swap(other); }
  HostPages& operator=(HostPages&& other) noexcept {
    swap(other);
    return *this;
  }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  ~HostPages();
  std::byte* data() const { return data_; }
  // The pages that lie wholly within the range are zeros again.
  void drop(std::uint64_t offset_bytes, std::uint64_t size_bytes);

 private:
  void swap(HostPages& other) {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

class StagedRequest {
 public:
  // write: filled from the device now. Errors: MC_NO_MEMORY, the driver's.
  static Result<std::unique_ptr<StagedRequest>> make(const DeviceRange& range, bool write);
  std::byte* data() const { return pages_.data(); }
  const std::byte* device_address() const { return range_.address; }
  std::uint64_t size_bytes() const { return range_.size_bytes; }
  Status to_device() const;

 private:
  DeviceRange range_;
  HostPages pages_;
};

class StagedRegion final : public transport::RegionGuard {
 public:
  // moved_bytes: is added what goes to or from the device; outlives this.
  static Result<std::unique_ptr<StagedRegion>> make(const DeviceRange& range,
                                                    std::uint64_t* moved_bytes);
  std::byte* data() const { return pages_.data(); }

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  transport::Outcome settle(std::uint64_t ticket) override;
  void unpin(std::uint64_t ticket) override;

 private:
  DeviceRange range_;
  HostPages pages_;
  std::uint64_t* moved_bytes_ = nullptr;
  std::map<std::uint64_t, transport::MemoryRange> pins_;  // by ticket
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mc::transfer
