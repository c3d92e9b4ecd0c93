// SPDX-License-Identifier: Apache-2.0
//
// The data by which a peer reaches a region one-sidedly: the region's size and rights,
//   the registered part of each chunk, and the keys of the chunks for each device of the serving
//   agent. The text is opaque to all other code.
//
//     header 56 B │ 8 B for each chunk: from page, to page │ device 16 B, a key for each chunk │
//     device …
//
// Threads: values.
// Trusts: nothing. decode() checks each length before reading the bytes.
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

// The devices of an agent: RDMA devices, or domains of libfabric.
inline constexpr std::size_t kMaxDeviceSlots = 32;
inline constexpr std::uint32_t kMinChunkShift = 12;
inline constexpr std::uint32_t kMaxChunkShift = 43;
// Soft RoCE of Linux 6.12 registers at most 1 GiB at once, counted in pages that the memory touches.
inline constexpr std::uint32_t kUsualChunkShift = 29;

// The registered part of a chunk, in pages of 4 KiB from the begin of the chunk. The last page may
// be shorter at the end of the region.
struct Cover {
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  bool operator==(const Cover&) const = default;
};
inline constexpr std::uint64_t kCoverPageBytes = 4096;

struct RegionKeys {
  std::uint8_t slot = 0;            // of the device
  std::uint64_t epoch = 0;          // of the keys
  std::vector<std::uint64_t> keys;  // by chunk; 0: none
};

// The facts of a description that differ between transports.
struct DescriptorFormat {
  std::string_view transport;
  std::uint32_t magic = 0;
  std::uint32_t key_bytes = 8;  // 4 or 8
  std::uint32_t max_devices = kMaxDeviceSlots;
};

struct RegionDescriptor {
  RegionId region = kNoRegion;
  std::uint64_t incarnation = 0;  // of the serving agent
  // The address of the first byte for devices. 0: devices count each chunk from the first
  // registered byte.
  std::uint64_t base = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;
  bool guarded = true;  // the serving side has a guard for the region
  std::uint32_t chunk_shift = 30;
  std::vector<Cover> covers;  // by chunk
  std::vector<RegionKeys> devices;

  std::uint64_t chunk_count() const { return ((size_bytes - 1) >> chunk_shift) + 1; }
  // Whether the whole range is registered.
  bool covers_all(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;
  // The address of a byte for devices.
  std::uint64_t address_of(std::uint64_t offset_bytes) const {
    if (base != 0) return base + offset_bytes;
    const std::uint64_t chunk = offset_bytes >> chunk_shift;
    return offset_bytes - (chunk << chunk_shift) - covers[chunk].from * kCoverPageBytes;
  }

  std::vector<std::byte> encode(const DescriptorFormat& format) const;
  static std::optional<RegionDescriptor> decode(const DescriptorFormat& format,
                                                std::span<const std::byte> bytes);
};

// The cover of a whole chunk.
Cover whole_chunk(std::uint64_t size_bytes, std::uint32_t chunk_shift, std::uint64_t chunk);

// The smallest chunk size, at least that of kUsualChunkShift, with which a description for so many devices stays below
// kMaxDescriptorBytes.
std::uint32_t chunk_shift_for(const DescriptorFormat& format, std::uint64_t size_bytes,
                              std::size_t devices);

}  // namespace mc::transport
