// SPDX-License-Identifier: Apache-2.0
//
// What it is: what a peer needs to reach a region one-sidedly: its size, its rights, how much of
//   each chunk is registered, and for each device of the serving agent the keys of its chunks. The
//   text is opaque to all others.
//
//     header 56 B │ 8 B for each chunk: from page, to page │ device 16 B, a key for each chunk │
//     device …
//
// Threads: values. Trusts: nothing: decode() checks all lengths before it takes any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "transport/limits.h"
#include "transport/region.h"

namespace mc::transport {

// Of one agent: RDMA devices, or domains of libfabric.
inline constexpr std::size_t kMaxDeviceSlots = 32;
inline constexpr std::uint32_t kMinChunkShift = 12;
inline constexpr std::uint32_t kMaxChunkShift = 43;

// The part of a chunk that is registered, in pages of 4 KiB from its beginning; the last one may be
// shorter than a page where the region is.
struct Cover {
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  bool operator==(const Cover&) const = default;
};
inline constexpr std::uint64_t kCoverPageBytes = 4096;

struct RegionKeys {
  std::uint8_t slot = 0;            // of the device
  std::uint64_t epoch = 0;          // that the keys are of
  std::vector<std::uint64_t> keys;  // by chunk; 0: none
};

// What differs between transports.
struct DescriptorFormat {
  std::string_view transport;
  std::uint32_t magic = 0;
  std::uint32_t key_bytes = 8;  // 4 or 8
  std::uint32_t max_devices = kMaxDeviceSlots;
};

struct RegionDescriptor {
  RegionId region = kNoRegion;
  std::uint64_t incarnation = 0;  // of the serving agent
  // By which address devices know the first byte. 0: they count each chunk from the first byte of
  // it that is registered.
  std::uint64_t base = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;
  std::uint32_t chunk_shift = 30;
  std::vector<Cover> covers;  // by chunk
  std::vector<RegionKeys> devices;

  std::uint64_t chunk_count() const { return ((size_bytes - 1) >> chunk_shift) + 1; }
  // Whether all of that range is registered.
  bool covers_all(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
  // Of a byte, for devices.
  std::uint64_t address_of(std::uint64_t offset_bytes) const {
    if (base != 0) return base + offset_bytes;
    const std::uint64_t chunk = offset_bytes >> chunk_shift;
    return offset_bytes - (chunk << chunk_shift) - covers[chunk].from * kCoverPageBytes;
  }

  std::vector<std::byte> encode(const DescriptorFormat& format) const;
  static std::optional<RegionDescriptor> decode(const DescriptorFormat& format,
                                                std::span<const std::byte> bytes);
};

// All of that chunk.
Cover whole_chunk(std::uint64_t size_bytes, std::uint32_t chunk_shift, std::uint64_t chunk);

// The smallest chunks, from 1 GiB on, with which a description for so many devices stays below
// kMaxDescriptorBytes.
std::uint32_t chunk_shift_for(const DescriptorFormat& format, std::uint64_t size_bytes,
                              std::size_t devices);

}  // namespace mc::transport
