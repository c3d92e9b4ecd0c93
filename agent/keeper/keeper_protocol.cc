// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/keeper_protocol.h"

#include <algorithm>
#include <cstring>

namespace mc::agent {
namespace {

constexpr std::uint32_t kMagic = 0x504b434d;  // "MCKP"
constexpr std::uint16_t kVersion = 1;

bool has_name(KeeperVerb verb) {
  return verb == KeeperVerb::kPut || verb == KeeperVerb::kDrop || verb == KeeperVerb::kItem;
}

bool has_descriptor(KeeperVerb verb) {
  return verb == KeeperVerb::kPut || verb == KeeperVerb::kItem;
}

tl::unexpected<Status> malformed(std::string_view what) {
  return fail(MC_INVALID_ARGUMENT, "a keeper message with " + std::string(what));
}

}  // namespace

KeeperFrame encode_keeper_message(const KeeperMessage& message) {
  KeeperFrame frame{};
  frame.magic = kMagic;
  frame.version = kVersion;
  frame.verb = static_cast<std::uint16_t>(message.verb);
  frame.code = static_cast<std::uint32_t>(message.code);
  frame.value = message.value;
  frame.name_bytes = static_cast<std::uint32_t>(std::min(message.name.size(), frame.name.size()));
  std::memcpy(frame.name.data(), message.name.data(), frame.name_bytes);
  return frame;
}

Result<KeeperMessage> decode_keeper_message(std::span<const std::byte> bytes,
                                            std::size_t descriptor_count) {
  KeeperFrame frame;
  if (bytes.size() != sizeof frame) return malformed("a wrong length");
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != kMagic) return malformed("a wrong first word");
  if (frame.version != kVersion) return malformed("an unknown version");
  if (frame.verb < static_cast<std::uint16_t>(KeeperVerb::kPut) ||
      frame.verb > static_cast<std::uint16_t>(KeeperVerb::kReply)) {
    return malformed("an unknown verb");
  }
  KeeperMessage message;
  message.verb = static_cast<KeeperVerb>(frame.verb);
  message.value = frame.value;
  if (frame.code > MC_INTERNAL || (frame.code != 0 && message.verb != KeeperVerb::kReply)) {
    return malformed("a wrong code");
  }
  message.code = static_cast<mc_status>(frame.code);
  if (frame.name_bytes > frame.name.size()) return malformed("too long a name");
  const std::string_view field(frame.name.data(), frame.name.size());
  message.name = field.substr(0, frame.name_bytes);
  if (field.find_first_not_of('\0', frame.name_bytes) != std::string_view::npos) {
    return malformed("bytes behind its name");
  }
  if (has_name(message.verb) ? !is_store_name(message.name) : !message.name.empty()) {
    return malformed("a wrong name");
  }
  if (descriptor_count != (has_descriptor(message.verb) ? 1u : 0u)) {
    return malformed("a wrong number of descriptors");
  }
  return message;
}

}  // namespace mc::agent
