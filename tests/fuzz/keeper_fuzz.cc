// SPDX-License-Identifier: Apache-2.0
//
// The keeper's decoder with arbitrary bytes: an accepted message encodes to the same bytes again.
#include <cstdlib>
#include <cstring>

#include "agent/keeper/keeper_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (std::size_t descriptor_count = 0; descriptor_count <= 2; ++descriptor_count) {
    const auto message = mc::agent::decode_keeper_message(bytes, descriptor_count);
    if (!message) continue;
    const auto frame = mc::agent::encode_keeper_message(*message);
    if (std::memcmp(&frame, data, sizeof frame) != 0) std::abort();
  }
  return 0;
}
