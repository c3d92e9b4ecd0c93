// SPDX-License-Identifier: Apache-2.0
//
// What it is: what a peer needs to read or write a region: its address, its rights, how much of
//   each chunk is registered, and for each device of the serving agent the keys of its chunks. The
//   text is opaque to all others.
//
//     header 56 B │ 8 B for each chunk: from page, to page │ device 16 B, a key of 4 B for each
//     chunk │ device …
//
// Threads: values. Trusts: nothing: decode_descriptor() checks all lengths before it takes any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/limits.h"
#include "transport/rdma/message.h"
#include "transport/region.h"

namespace mc::transport::rdma {

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
  std::uint8_t slot = 0;    // of the device
  std::uint64_t epoch = 0;  // that the keys are of
  std::vector<std::uint32_t> keys;
};

struct RegionDescriptor {
  static constexpr const char* kTransport = "rdma";
  // decode_descriptor().
  static std::optional<RegionDescriptor> decode(std::span<const std::byte> bytes);

  RegionId region = kNoRegion;
  std::uint64_t incarnation = 0;  // of the serving agent
  std::uint64_t base = 0;         // address at the serving agent
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;
  std::uint32_t chunk_shift = 30;
  std::vector<Cover> covers;  // by chunk
  std::vector<RegionKeys> devices;

  std::uint64_t chunk_count() const { return ((size_bytes - 1) >> chunk_shift) + 1; }
};

// All of that chunk.
Cover whole_chunk(std::uint64_t size_bytes, std::uint32_t chunk_shift, std::uint64_t chunk);

// The smallest chunks, from 1 GiB on, with which a description for so many devices stays below
// kMaxDescriptorBytes.
std::uint32_t chunk_shift_for(std::uint64_t size_bytes, std::size_t devices);

std::vector<std::byte> encode_descriptor(const RegionDescriptor& descriptor);
std::optional<RegionDescriptor> decode_descriptor(std::span<const std::byte> bytes);

}  // namespace mc::transport::rdma
