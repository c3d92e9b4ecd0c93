// SPDX-License-Identifier: Apache-2.0
#include "shm/layout.h"

namespace mc::shm {

static_assert(offsetof(Entry, version) == 0 && offsetof(Entry, hash) == 8 &&
              offsetof(Entry, extent) == 16 && offsetof(Entry, length) == 24 &&
              offsetof(Entry, checksum) == 32 && offsetof(Entry, key) == 40 &&
              offsetof(Entry, parent_hash) == 48 && offsetof(Entry, attributes) == 56);
static_assert(offsetof(IndexHeader, hash_seed) == 64 && offsetof(IndexHeader, generation) == 192 &&
              offsetof(IndexHeader, pool_bytes) == 256);
static_assert(offsetof(Channel, requests) == 256 && offsetof(Channel, completions) == 16640 &&
              offsetof(Channel, pins) == 33024 && offsetof(Channel, touches) == 41216 &&
              offsetof(Channel, arguments) == 106752 + 3840);
static_assert(offsetof(SessionHeader, session_id) == 64 && offsetof(SessionHeader, beacon) == 128);

bool check_header(const FileHeader& header, FileKind kind, std::uint64_t mapped_bytes) {
  return header.magic == kMagic && header.layout_version == kLayoutVersion &&
         header.kind == static_cast<std::uint32_t>(kind) && header.size_bytes <= mapped_bytes;
}

FileHeader make_header(FileKind kind, std::uint64_t size_bytes, std::uint64_t node_id,
                       std::uint64_t incarnation) {
  FileHeader header{};
  header.magic = kMagic;
  header.layout_version = kLayoutVersion;
  header.kind = static_cast<std::uint32_t>(kind);
  header.size_bytes = size_bytes;
  header.node_id = node_id;
  header.incarnation = incarnation;
  return header;
}

}  // namespace mc::shm
