// SPDX-License-Identifier: Apache-2.0
//
// A message of the socket, decoded as every type.
#include <span>

#include "bytes.h"
#include "shm/messages.h"

namespace {

template <typename T>
void decode(std::span<const std::byte> bytes, mc::shm::ControlType type) {
  std::string_view text;
  const auto message = mc::shm::decode_control<T>(bytes, type, &text);
  if (!message) return;
  mc::fuzz::require(text.size() + sizeof(T) == bytes.size());
  mc::fuzz::require(text.empty() ||
                    text.data() == reinterpret_cast<const char*>(bytes.data()) + sizeof(T));
  volatile unsigned sum = 0;
  for (const char c : text) sum = sum + static_cast<unsigned char>(c);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using mc::shm::ControlType;
  const auto bytes = std::as_bytes(std::span(data, size));
  for (std::uint32_t type = 0; type <= 9; ++type) {
    const auto wanted = static_cast<ControlType>(type);
    decode<mc::shm::ControlHeader>(bytes, wanted);
    decode<mc::shm::ClientHello>(bytes, wanted);
    decode<mc::shm::Welcome>(bytes, wanted);
  }
  return 0;
}
