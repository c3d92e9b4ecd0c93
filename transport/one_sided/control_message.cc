// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/control_message.h"

namespace mc::transport {

std::optional<ControlHeader> decode_control_header(std::span<const std::byte> bytes,
                                                   const ControlProtocol& protocol) {
  ControlHeader header{};
  if (!take_whole(bytes, header) || header.magic != protocol.magic || header.reserved0 != 0 ||
      header.reserved1 != 0 || header.body_bytes > protocol.max_body_bytes) {
    return std::nullopt;
  }
  return header;
}

std::vector<std::byte> start_control_message(std::uint32_t magic, std::uint16_t kind,
                                             std::size_t body_bytes) {
  std::vector<std::byte> bytes;
  bytes.reserve(kControlHeaderBytes + body_bytes);
  append_value(bytes, ControlHeader{magic, kind, 0, static_cast<std::uint32_t>(body_bytes), 0});
  return bytes;
}

}  // namespace mc::transport
