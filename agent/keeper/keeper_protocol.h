// SPDX-License-Identifier: Apache-2.0
//
// The datagrams between agent and keeper on <runtime_dir>/keeper.sock. All datagrams
//   have the same shape and size. The agent asks, and the keeper answers each request with a kReply
//   (after the kItems of a kTakeAll). Version 1 must stay understood: an agent meets keepers that
//   an older agent started.
//
//   byte 0     4        6      8        12           16     20         220
//        magic | version | verb | code   | name_bytes | value | name ... |
//
// Threads: any; pure functions.
// Trusts: nothing; decode_keeper_message() is the only reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agent/keeper/descriptor_store.h"
#include "mc/status.h"

namespace mc::agent {

inline constexpr std::size_t kMaxKeptDescriptors = 8192;
inline constexpr std::uint64_t kKeeperTimeoutNs = 2'000'000'000;
// A program starts in milliseconds, but takes seconds on an overloaded host.
inline constexpr std::uint64_t kKeeperStartNs = 10'000'000'000;
inline constexpr std::string_view kKeeperSocketName = "/keeper.sock";

enum class KeeperVerb : std::uint16_t {
  kPut = 1,      // name and one descriptor
  kDrop = 2,     // name
  kTakeAll = 3,  // value: keep_seconds from now on
  kDropAll = 4,  // value: 1 ends the keeper as well
  kItem = 5,     // name and one descriptor
  kReply = 6,    // code: an mc_status; value: descriptors kept
};

// Both ends run on the same host, so the fields have the byte order of that host.
struct KeeperFrame {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t verb;
  std::uint32_t code;
  std::uint32_t name_bytes;
  std::uint32_t value;
  std::array<char, kMaxStoreNameBytes> name;  // zeros after name_bytes
};
static_assert(offsetof(KeeperFrame, verb) == 6 && offsetof(KeeperFrame, code) == 8 &&
              offsetof(KeeperFrame, name_bytes) == 12 && offsetof(KeeperFrame, value) == 16 &&
              offsetof(KeeperFrame, name) == 20 && sizeof(KeeperFrame) == 220);

struct KeeperMessage {
  KeeperVerb verb = KeeperVerb::kReply;
  mc_status code = MC_OK;
  std::uint32_t value = 0;
  std::string name;
};

// REQUIRES: message.name is empty or a store name.
KeeperFrame encode_keeper_message(const KeeperMessage& message);
// descriptor_count: descriptors that came with the datagram. Errors: MC_INVALID_ARGUMENT.
Result<KeeperMessage> decode_keeper_message(std::span<const std::byte> bytes,
                                            std::size_t descriptor_count);

}  // namespace mc::agent
