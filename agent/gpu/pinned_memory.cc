// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/pinned_memory.h"

#include <algorithm>
#include <iterator>

namespace mc::gpu {

using device::Calls;

PinnedMemory::PinnedMemory(const device::Driver& driver, int device, Mapping memory,
                           std::uint64_t part_bytes, bool writable)
    : driver_(driver),
      device_(device),
      memory_(std::move(memory)),
      part_bytes_(part_bytes),
      writable_(writable),
      pinned_ends_((memory_.size_bytes() + part_bytes - 1) / part_bytes) {}

PinnedMemory::~PinnedMemory() {
  for (std::size_t part = 0; part < pinned_ends_.size(); ++part) shrink(part, 0);
}

Result<bool> PinnedMemory::grow(std::size_t part, std::uint64_t backed_bytes) {
  std::uint64_t& end = pinned_ends_[part];
  const std::uint64_t part_start = part * part_bytes_;
  const std::uint64_t limit =
      std::min({backed_bytes, part_bytes_, memory_.size_bytes() - part_start});
  if (end >= limit) return false;
  const std::uint64_t start = part_start + end;
  const std::uint64_t bytes = std::min(kPieceBytes, limit - end);
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return fail(current.status());
  const Status status = driver_.call<&Calls::host_register>(
      static_cast<void*>(memory_.data() + start), bytes,
      writable_ ? device::kPortable : device::kPortable | device::kReadOnly);
  if (!status.ok()) return fail(status);
  end += bytes;
  pinned_bytes_ += bytes;
  pieces_[start] = bytes;
  return true;
}

void PinnedMemory::shrink(std::size_t part, std::uint64_t backed_bytes) {
  const std::uint64_t part_start = part * part_bytes_;
  std::uint64_t& end = pinned_ends_[part];
  const device::Current current(driver_, device_);
  while (end > backed_bytes) {
    const auto last = std::prev(pieces_.upper_bound(part_start + end - 1));
    const std::uint64_t start = last->first;
    pinned_bytes_ -= last->second;
    pieces_.erase(last);
    if (current.status().ok()) {
      static_cast<void>(driver_.calls().host_unregister(memory_.data() + start));
    }
    end = start - part_start;
  }
}

std::uint64_t PinnedMemory::pinned_from(std::uint64_t offset) const {
  const auto after = pieces_.upper_bound(offset);
  if (after == pieces_.begin()) return 0;
  const auto& [start, bytes] = *std::prev(after);
  return offset - start < bytes ? bytes - (offset - start) : 0;
}

}  // namespace mc::gpu
