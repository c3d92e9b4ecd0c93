// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/remote_regions.h"

#include <algorithm>

namespace mc::transport::rdma {

bool covers(const RemoteRegion& region, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  const RegionDescriptor& described = region.described;
  if (size_bytes == 0 || size_bytes > described.size_bytes ||
      offset_bytes > described.size_bytes - size_bytes) {
    return false;
  }
  const std::uint64_t end = offset_bytes + size_bytes;
  for (std::uint64_t at = offset_bytes; at < end;) {
    const std::uint64_t chunk = at >> described.chunk_shift;
    const std::uint64_t base = chunk << described.chunk_shift;
    const std::uint64_t until = std::min(end, (chunk + 1) << described.chunk_shift);
    const Cover& cover = described.covers[chunk];
    if (at < base + cover.from * kCoverPageBytes || until > base + cover.to * kCoverPageBytes) {
      return false;
    }
    at = until;
  }
  return true;
}

bool has_keys(const RemoteRegion& region, std::size_t slot, std::uint64_t offset_bytes,
              std::uint64_t size_bytes) {
  if (region.keys[slot] == nullptr) return false;
  const std::uint32_t shift = region.described.chunk_shift;
  const std::uint64_t last = (offset_bytes + size_bytes - 1) >> shift;
  for (std::uint64_t chunk = offset_bytes >> shift; chunk <= last; ++chunk) {
    if (region.keys[slot]->keys[chunk] == 0) return false;
  }
  return true;
}

}  // namespace mc::transport::rdma
