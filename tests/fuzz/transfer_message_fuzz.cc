// SPDX-License-Identifier: Apache-2.0
//
// Messages of a transfer engine's peer: engine descriptor, region table, notification.
#include <cstring>
#include <span>

#include "bytes.h"
#include "libmc/base/hash.h"
#include "transport/engine/wire/directory.h"
#include "transport/engine/wire/notification.h"
#include "transport/region.h"

using namespace mc::transfer;  // NOLINT: a program's only file
using mc::fuzz::require;

namespace {

void check(const Directory& directory) {
  require(directory.entries.size() <= MC_MAX_TRANSFER_REGIONS);
  std::uint64_t end = 0;
  for (const DirectoryEntry& entry : directory.entries) {
    require(entry.address >= end && entry.address != 0 && entry.size_bytes != 0);
    end = entry.address + entry.size_bytes;
    require(end > entry.address && (entry.rights & ~mc::transport::kKnownRights) == 0);
    require(directory.find(entry.address, entry.size_bytes) == &entry);
    require(directory.find(entry.address, entry.size_bytes + 1) == nullptr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto engine_descriptor = decode_engine_descriptor(bytes)) {
    require(engine_descriptor->node != 0 &&
            engine_descriptor->directory_bytes <= kMaxDirectoryBytes);
  }
  if (const auto note = decode_notification(bytes)) {
    require(note->name.size() + note->message.size() + kNotificationHeadBytes == size);
    const auto again = encode_notification(note->name, note->message);
    require(again.size() == size && std::memcmp(again.data(), data, size) == 0);
  }
  if (const auto directory = decode_directory(bytes)) check(*directory);
  if (size < kDirectoryHeadBytes) return 0;
  // No input guesses a checksum: try the table again with the right checksum.
  std::vector<std::byte> table(bytes.begin(), bytes.end());
  DirectoryHead head;
  std::memcpy(&head, table.data(), sizeof head);
  head.magic = kDirectoryMagic;
  head.version = kDirectoryVersion;
  head.entry_bytes = kDirectoryEntryBytes;
  head.count = static_cast<std::uint32_t>((size - sizeof head) / kDirectoryEntryBytes);
  head.checksum = 0;
  const std::uint64_t seed = mc::hash_key(&head, sizeof head, 0);
  head.checksum = mc::hash_key(table.data() + sizeof head, head.count * kDirectoryEntryBytes, seed);
  std::memcpy(table.data(), &head, sizeof head);
  if (const auto directory = decode_directory(table)) check(*directory);
  return 0;
}
