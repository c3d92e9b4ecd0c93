// SPDX-License-Identifier: Apache-2.0
#include "libmc/transfer/card.h"

#include <cstring>
#include <string>

#include "libmc/transfer/directory.h"

namespace mc::transfer {

Card blank_card() {
  Card card{};
  card.magic = kCardMagic;
  card.version = kCardVersion;
  card.size_bytes = sizeof card;
  return card;
}

Result<Card> decode_card(std::span<const std::byte> bytes) {
  Card card;
  if (bytes.size() != sizeof card) return fail(MC_INVALID_ARGUMENT, "a card has 160 bytes");
  std::memcpy(&card, bytes.data(), sizeof card);
  if (card.magic != kCardMagic) {
    return fail(MC_INVALID_ARGUMENT, "what answers there is not a transfer engine");
  }
  if (card.version != kCardVersion || card.size_bytes != sizeof card) {
    return fail(MC_VERSION_MISMATCH, "the peer's engine speaks version " +
                                         std::to_string(card.version) + ", this one " +
                                         std::to_string(kCardVersion) + "; upgrade the older one");
  }
  bool zeros = card.reserved0 == 0 && card.reserved1 == 0;
  for (const std::uint64_t word : card.reserved2) zeros = zeros && word == 0;
  if (!zeros || card.node == 0 || card.directory_bytes < kDirectoryHeadBytes ||
      card.directory_bytes > kMaxDirectoryBytes) {
    return fail(MC_INVALID_ARGUMENT, "the peer's card has a field out of range");
  }
  return card;
}

}  // namespace mc::transfer
