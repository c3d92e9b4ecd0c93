// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/wire/notification.h"

#include <cstdint>
#include <cstring>

#include "mc/limits.h"
#include "transport/limits.h"

namespace mc::transfer {

namespace {
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxBytes = kNotificationHeadBytes + MC_MAX_TRANSFER_NOTE_BYTES;
static_assert(kMaxBytes <= transport::kMaxNotificationBytes);
}  // namespace

std::vector<std::byte> encode_notification(std::string_view name, std::string_view message) {
  const std::uint32_t head[2] = {kVersion, static_cast<std::uint32_t>(name.size())};
  std::vector<std::byte> bytes(kNotificationHeadBytes + name.size() + message.size());
  std::memcpy(bytes.data(), head, sizeof head);
  if (!name.empty()) std::memcpy(bytes.data() + sizeof head, name.data(), name.size());
  if (!message.empty()) {
    std::memcpy(bytes.data() + sizeof head + name.size(), message.data(), message.size());
  }
  return bytes;
}

std::optional<Notification> decode_notification(std::span<const std::byte> bytes) {
  std::uint32_t head[2];
  if (bytes.size() < sizeof head || bytes.size() > kMaxBytes) {
    return std::nullopt;
  }
  std::memcpy(head, bytes.data(), sizeof head);
  const std::size_t rest = bytes.size() - sizeof head;
  if (head[0] != kVersion || head[1] > rest) return std::nullopt;
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof head;
  return Notification{{text, head[1]}, {text + head[1], rest - head[1]}};
}

}  // namespace mc::transfer
