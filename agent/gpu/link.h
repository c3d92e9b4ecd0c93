// SPDX-License-Identifier: Apache-2.0
//
// Messages between the agent and the worker of a device, over a unix socket of datagrams.
//
//   worker ──kHello──► agent          which device
//   agent ──kPool──► worker           a namespace's pool: descriptors of its parts
//   agent ──kBacked──► worker ──kUnpinned──► agent       memory of a part comes or goes
//   agent ──kLane──► worker           a client's lane: descriptors of lane, bells and staging
//   agent ──kEndClient──► worker ──kClientEnded──► agent  no copy of the client is under way any more
//   agent ──kReport──► worker ──kReport──► agent          what the worker has done
//
//   The agent numbers the messages that want an answer, and ends a worker that does not answer.
//
// Threads: values.
// Trusts: nothing. decode_link() checks magic, version and size.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "libmc/device/driver.h"

namespace mc::gpu {

inline constexpr std::uint64_t kLinkMagic = 0x6b6e696c75706763;  // "cgpulink"
inline constexpr std::uint32_t kLinkVersion = 1;

enum class LinkType : std::uint32_t {
  kHello = 1,
  kPool = 2,
  kBacked = 3,
  kUnpinned = 4,
  kLane = 5,
  kEndClient = 6,
  kClientEnded = 7,
  kDropPool = 8,
  kReport = 9,
};

struct WorkerCounters {
  std::uint64_t bytes_to_device = 0;
  std::uint64_t bytes_from_device = 0;
  std::uint64_t requests = 0;  // of copies
  std::uint64_t imports = 0;   // open now
  std::uint64_t opened = 0;    // imports since the start
  std::uint64_t pinned_bytes = 0;
};

struct LinkMessage {
  std::uint64_t magic = kLinkMagic;
  std::uint32_t version = kLinkVersion;
  LinkType type = LinkType::kHello;
  device::Uuid device{};         // kHello
  std::uint64_t pool = 0;        // a number of the agent
  std::uint64_t client = 0;      // the number of its session
  std::uint32_t part = 0;        // kBacked, kUnpinned
  std::uint32_t part_count = 0;  // kPool
  std::uint64_t bytes = 0;       // kPool: of a part, at most; kBacked, kUnpinned: that exist
                                 // kLane: of the staging memory; 0: none
  std::uint32_t writable = 0;    // kPool
  std::uint32_t reserved = 0;
  std::uint64_t ticket = 0;   // of the agent, returned with the answer; 0: no answer wanted
  WorkerCounters counters{};  // kReport
};
static_assert(sizeof(LinkMessage) == 128);

// Places of the descriptors of kLane.
inline constexpr std::size_t kLaneFd = 0, kWorkerBellFd = 1, kClientBellFd = 2, kChunksFd = 3,
                             kStagingFd = 4;

inline std::optional<LinkMessage> decode_link(std::span<const std::byte> bytes) {
  LinkMessage message;
  if (bytes.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.magic != kLinkMagic || message.version != kLinkVersion) return std::nullopt;
  return message;
}

}  // namespace mc::gpu
