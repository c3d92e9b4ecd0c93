// SPDX-License-Identifier: Apache-2.0
//
// Host memory that stands for device memory during a transfer.
//
//   StagedRequest   the local side of a request of this engine. make() fills the pages from the
//                   device before a write is sent. to_device() empties the pages after a read.
//   StagedRegion    a registered device range, as the transport sees the range. The address range
//                   has the size of the device range, but no pages. The transport pins each slice
//                   that it serves. A pin for a read fills the slice's pages. A complete write is
//                   copied to the device before the acknowledgement. Pages without a pin are freed.
//
// Threads: under the engine's lock, except StagedRequest::make().
// Owns: the pages. Device memory is the caller's, during a registration or a request.
// Trusts: ranges that transport::RegionTable has checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "libmc/device/memory.h"
#include "transport/region.h"

namespace mc::transfer {

struct DeviceRange {
  const device::Driver* driver = nullptr;
  int device = device::kHost;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
};

// Zeroed pages, allocated at first touch, freed by the destructor.
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
  // Zeroes and frees the pages that lie entirely within the range.
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
  // write: fills the pages from the device. Errors: MC_NO_MEMORY, those of the driver.
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
  // *moved_bytes counts bytes to and from the device; the counter must outlive the region.
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
