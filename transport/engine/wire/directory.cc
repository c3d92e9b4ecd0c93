// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/wire/directory.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "libmc/base/hash.h"
#include "transport/region.h"

namespace mc::transfer {

namespace {

DirectoryHead head_of(std::span<const std::byte> bytes) {
  DirectoryHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  return head;
}

std::uint64_t checksum_of(DirectoryHead head, const std::byte* entries) {
  head.checksum = 0;
  const std::uint64_t seed = hash_key(&head, sizeof head, 0);
  return hash_key(entries, head.count * kDirectoryEntryBytes, seed);
}

}  // namespace

const DirectoryEntry* Directory::find(std::uint64_t address, std::uint64_t size_bytes) const {
  auto after = std::ranges::upper_bound(entries, address, {}, &DirectoryEntry::address);
  if (after == entries.begin()) return nullptr;
  const DirectoryEntry& entry = *--after;
  const std::uint64_t offset = address - entry.address;
  const bool inside = size_bytes <= entry.size_bytes && offset <= entry.size_bytes - size_bytes;
  return inside ? &entry : nullptr;
}

Result<std::size_t> directory_size(std::span<const std::byte> bytes) {
  if (bytes.size() < kDirectoryHeadBytes) {
    return fail(MC_CORRUPT, "the peer's region table is shorter than its head");
  }
  const DirectoryHead head = head_of(bytes);
  if (head.magic != kDirectoryMagic) {
    return fail(MC_CORRUPT, "the peer's engine descriptor does not point to a region table");
  }
  if (head.version != kDirectoryVersion || head.entry_bytes != kDirectoryEntryBytes) {
    return fail(MC_VERSION_MISMATCH,
                "the peer's region table has another version; upgrade the older engine");
  }
  if (head.count > MC_MAX_TRANSFER_REGIONS) {
    return fail(MC_CORRUPT, "the peer's region table has more entries than an engine may have");
  }
  return kDirectoryHeadBytes + head.count * kDirectoryEntryBytes;
}

Result<Directory> decode_directory(std::span<const std::byte> bytes) {
  const auto size = directory_size(bytes);
  if (!size) return fail(size.error());
  if (bytes.size() < *size) return fail(MC_BUSY, "the peer's region table grew meanwhile");
  const DirectoryHead head = head_of(bytes);
  if (checksum_of(head, bytes.data() + kDirectoryHeadBytes) != head.checksum) {
    return fail(MC_BUSY, "the peer's region table was being changed");
  }
  Directory directory;
  directory.generation = head.generation;
  directory.entries.resize(head.count);
  if (head.count > 0) {
    std::memcpy(directory.entries.data(), bytes.data() + kDirectoryHeadBytes,
                head.count * kDirectoryEntryBytes);
  }
  std::uint64_t end = 0;
  for (const DirectoryEntry& entry : directory.entries) {
    if (entry.address < end || entry.address == 0 || entry.size_bytes == 0 ||
        entry.size_bytes > ~std::uint64_t{0} - entry.address ||
        (entry.rights & ~transport::kKnownRights) != 0) {
      return fail(MC_CORRUPT, "the peer's region table has an entry out of range");
    }
    end = entry.address + entry.size_bytes;
  }
  return directory;
}

DirectoryWriter::DirectoryWriter(const Nonce& nonce)
    : memory_(std::make_unique<std::byte[]>(kMaxDirectoryBytes)) {
  DirectoryHead head{};
  head.magic = kDirectoryMagic;
  head.version = kDirectoryVersion;
  head.entry_bytes = kDirectoryEntryBytes;
  head.nonce = nonce;
  std::memcpy(memory_.get(), &head, sizeof head);
  publish({});
}

void DirectoryWriter::publish(std::span<const DirectoryEntry> entries) {
  DirectoryHead head = head_of({memory_.get(), kDirectoryHeadBytes});
  head.count = static_cast<std::uint32_t>(entries.size());
  ++head.generation;
  // Peers compare generations before and after a copy, so the new generation must be visible first.
  auto* at = reinterpret_cast<DirectoryHead*>(memory_.get());
  std::atomic_ref(at->generation).store(head.generation, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!entries.empty()) {
    std::memcpy(memory_.get() + kDirectoryHeadBytes, entries.data(), entries.size_bytes());
  }
  at->count = head.count;
  head.checksum = checksum_of(head, memory_.get() + kDirectoryHeadBytes);
  std::atomic_ref(at->checksum).store(head.checksum, std::memory_order_release);
}

}  // namespace mc::transfer
