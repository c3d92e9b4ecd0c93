// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a notification: a name and a message.
//
//   0         4              8      8 + name size
//   │ version │ bytes of name │ name │ message …
//
// Threads: values.
// Trusts: no peer. decode_notification() checks every length.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mc::transfer {

inline constexpr std::size_t kNotificationHeadBytes = 8;

struct Notification {
  std::string name;
  std::string message;
};

// REQUIRES: name and message have at most MC_MAX_TRANSFER_NOTE_BYTES together.
std::vector<std::byte> encode_notification(std::string_view name, std::string_view message);
std::optional<Notification> decode_notification(std::span<const std::byte> bytes);

}  // namespace mc::transfer
