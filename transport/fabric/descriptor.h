// SPDX-License-Identifier: Apache-2.0
//
// What it is: what a peer needs to read or write a region: its size, its rights, and for each
// domain
//   of the serving agent a key and where the region begins there. The text is opaque to all others.
//
//     header 48 B │ domain 32 B │ domain …
//
// Threads: values. Trusts: nothing: decode() checks all lengths before it takes any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/fabric/message.h"
#include "transport/region.h"

namespace mc::transport::fabric {

struct RegionKey {
  std::uint64_t epoch = 0;  // that the key is of
  std::uint64_t base = 0;   // the provider's address of the first byte: often 0
  std::uint64_t key = 0;
  std::uint32_t slot = 0;  // of the domain
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RegionKey) == 32);

struct RegionDescriptor {
  static constexpr const char* kTransport = "fabric";

  RegionId region = kNoRegion;
  std::uint64_t incarnation = 0;  // of the serving agent
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;
  std::vector<RegionKey> devices;

  std::vector<std::byte> encode() const;
  static std::optional<RegionDescriptor> decode(std::span<const std::byte> bytes);
};

}  // namespace mc::transport::fabric
