// SPDX-License-Identifier: Apache-2.0
//
// The first message between two engines, in both directions: the sender's identity, the
//   place of the region table, and the process for a peer on the same host.
//
//   0       8         10     12   16     24            32          56           64        80
//   │ magic │ version │ size │ 0  │ node │ incarnation │ directory │ its bytes │ boot id │
//   80              88    92  96                   104     136      160
//   │ pid namespace │ pid │ 0 │ directory's address │ nonce │ checks │
//
// Threads: values.
// Trusts: no peer. Exactly kEngineDescriptorBytes are read, checked, then used. An engine believes
//   that the peer is on this host only after it has read the nonce from the peer's memory
//   (local/same_host.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mc/status.h"
#include "transport/link.h"

namespace mc::transfer {

inline constexpr std::uint64_t kEngineDescriptorMagic = 0x3144524143434dull;  // "MCCARD1" as bytes
inline constexpr std::uint16_t kEngineDescriptorVersion = 2;
inline constexpr std::size_t kRegionTextBytes = 24;
inline constexpr std::size_t kNonceBytes = 32;
using RegionText = std::array<std::byte, kRegionTextBytes>;  // from Transport::describe()
using Nonce = std::array<std::byte, kNonceBytes>;

struct EngineDescriptor {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t size_bytes;  // of this struct
  std::uint32_t reserved0;
  transport::NodeId node;
  std::uint64_t incarnation;
  RegionText directory;           // the region of the table (directory.h)
  std::uint64_t directory_bytes;  // size of that region
  std::array<std::byte, 16> boot_id;
  std::uint64_t pid_namespace;  // inode; 0: unknown
  std::uint32_t pid;            // process id within the namespace
  std::uint32_t reserved1;
  std::uint64_t directory_address;
  Nonce nonce;        // also stored in the region table
  RegionText checks;  // the region for questions about checksums (check.h)
};
inline constexpr std::size_t kEngineDescriptorBytes = 160;
static_assert(sizeof(EngineDescriptor) == kEngineDescriptorBytes);
static_assert(offsetof(EngineDescriptor, node) == 16 &&
              offsetof(EngineDescriptor, directory) == 32);
static_assert(offsetof(EngineDescriptor, boot_id) == 64 && offsetof(EngineDescriptor, pid) == 88);
static_assert(offsetof(EngineDescriptor, directory_address) == 96 &&
              offsetof(EngineDescriptor, nonce) == 104);
static_assert(offsetof(EngineDescriptor, checks) == 136);

// Sets magic, version and size; other fields are zero.
EngineDescriptor blank_engine_descriptor();
// Errors: MC_VERSION_MISMATCH, MC_INVALID_ARGUMENT with the reason.
Result<EngineDescriptor> decode_engine_descriptor(std::span<const std::byte> bytes);

}  // namespace mc::transfer
