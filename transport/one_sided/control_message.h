// SPDX-License-Identifier: Apache-2.0
//
// The frame of the messages on a control link, and the functions that encode and decode
//   the values. A header of 16 bytes, then the body; little-endian.
// Threads: values.
// Trusts: nothing. decode_control_header() and take_…() copy, check lengths, and return a value or
//   none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace mc::transport {

struct ControlHeader {
  std::uint32_t magic;
  std::uint16_t kind;
  std::uint16_t reserved0;
  std::uint32_t body_bytes;
  std::uint32_t reserved1;
};
inline constexpr std::size_t kControlHeaderBytes = 16;
static_assert(sizeof(ControlHeader) == kControlHeaderBytes);

// A device registers a receive buffer of this size for each notification that may arrive.
inline constexpr std::uint32_t kMaxOneSidedNotificationBytes = 8192;

// The kind of messages that a link carries.
struct ControlProtocol {
  std::uint32_t magic = 0;
  std::size_t max_body_bytes = 0;
};

// None: the peer breaks the contract, and the link must be cut. REQUIRES: bytes.size() ==
// kControlHeaderBytes.
std::optional<ControlHeader> decode_control_header(std::span<const std::byte> bytes,
                                                   const ControlProtocol& protocol);
// The header; the caller appends the body.
std::vector<std::byte> start_control_message(std::uint32_t magic, std::uint16_t kind,
                                             std::size_t body_bytes);

template <typename Value>
void append_value(std::vector<std::byte>& bytes, const Value& value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// False: the bytes are not exactly one value.
template <typename Value>
bool take_whole(std::span<const std::byte> bytes, Value& value) {
  if (bytes.size() != sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

// Takes a value off the front. False: the bytes end before the value does.
template <typename Value>
bool take_front(std::span<const std::byte>& bytes, Value& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return true;
}

}  // namespace mc::transport
