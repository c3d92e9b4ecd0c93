// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/staging.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "libmc/base/fd.h"

namespace mc::transfer {

using transport::Outcome;

// ---- Pages ------------------------------------------------------------------------------------

Result<HostPages> HostPages::reserve(std::uint64_t size_bytes) {
  void* const at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return fail(MC_NO_MEMORY, errno_text("mmap of host pages for device memory", errno));
  }
  HostPages pages;
  pages.data_ = static_cast<std::byte*>(at);
  pages.size_bytes_ = size_bytes;
  return pages;
}

HostPages::~HostPages() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

void HostPages::drop(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = (offset_bytes + page - 1) / page * page;
  const std::uint64_t last = (offset_bytes + size_bytes) / page * page;
  if (first < last) static_cast<void>(::madvise(data_ + first, last - first, MADV_DONTNEED));
}

// ---- Requests ---------------------------------------------------------------------------------

Result<std::unique_ptr<StagedRequest>> StagedRequest::make(const DeviceRange& range, bool write) {
  auto pages = HostPages::reserve(range.size_bytes);
  if (!pages) return fail(pages.error());
  auto made = std::make_unique<StagedRequest>();
  made->range_ = range;
  made->pages_ = std::move(*pages);
  if (write) {
    const Status filled = device::copy_to_host(*range.driver, range.device, made->data(),
                                               range.address, range.size_bytes);
    if (!filled.ok()) return fail(filled);
  }
  return made;
}

Status StagedRequest::to_device() const {
  return device::copy_to_device(*range_.driver, range_.device, range_.address, data(),
                                range_.size_bytes);
}

// ---- Regions ----------------------------------------------------------------------------------

Result<std::unique_ptr<StagedRegion>> StagedRegion::make(const DeviceRange& range,
                                                         std::uint64_t* moved_bytes) {
  auto pages = HostPages::reserve(range.size_bytes);
  if (!pages) return fail(pages.error());
  auto made = std::make_unique<StagedRegion>();
  made->range_ = range;
  made->pages_ = std::move(*pages);
  made->moved_bytes_ = moved_bytes;
  return made;
}

Outcome StagedRegion::pin(const transport::Access& access, std::uint64_t* ticket) {
  if (!access.write) {
    const Status filled =
        device::copy_to_host(*range_.driver, range_.device, data() + access.offset_bytes,
                             range_.address + access.offset_bytes, access.size_bytes);
    if (!filled.ok()) return Outcome::kUnsupported;
    *moved_bytes_ += access.size_bytes;
  }
  *ticket = next_ticket_++;
  pins_.emplace(*ticket, transport::MemoryRange{access.offset_bytes, access.size_bytes});
  return Outcome::kDone;
}

Outcome StagedRegion::settle(std::uint64_t ticket) {
  const transport::MemoryRange range = pins_.at(ticket);
  const Status copied =
      device::copy_to_device(*range_.driver, range_.device, range_.address + range.offset_bytes,
                             data() + range.offset_bytes, range.size_bytes);
  if (!copied.ok()) return Outcome::kUnsupported;
  *moved_bytes_ += range.size_bytes;
  return Outcome::kDone;
}

void StagedRegion::unpin(std::uint64_t ticket) {
  const auto at = pins_.find(ticket);
  const transport::MemoryRange mine = at->second;
  pins_.erase(at);
  // The list is short: a few slices per lane.
  const bool shared = std::ranges::any_of(pins_, [&](const auto& pin) {
    const transport::MemoryRange& other = pin.second;
    return other.offset_bytes < mine.offset_bytes + mine.size_bytes &&
           mine.offset_bytes < other.offset_bytes + other.size_bytes;
  });
  if (!shared) pages_.drop(mine.offset_bytes, mine.size_bytes);
}

}  // namespace mc::transfer
