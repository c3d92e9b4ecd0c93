// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/version_book.h"

#include <algorithm>

namespace mc::agent {

namespace {

constexpr std::uint64_t kChunkBytes = 1u << 20;

}  // namespace

std::uint64_t VersionBook::file_bytes(std::uint64_t max_entries) {
  return (max_entries * sizeof(Row) + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
}

Result<std::unique_ptr<VersionBook>> VersionBook::open(MemoryFile kept, std::uint64_t max_entries) {
  auto book = std::unique_ptr<VersionBook>(new VersionBook);
  if (kept) {
    book->file_ = std::move(kept);
  } else {
    const std::uint64_t bytes = file_bytes(max_entries);
    auto made = MemoryFile::create_growing("mc-versions", {&bytes, 1});
    if (!made) return fail(made.error());
    book->file_ = std::move(*made);
  }
  auto mapping = Mapping::map_all(book->file_, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  book->mapping_ = std::move(*mapping);
  // Pages are reserved from the front, so the resident bytes are the reserved bytes.
  book->reserved_bytes_ = book->file_.resident_bytes() / kChunkBytes * kChunkBytes;
  return book;
}

bool VersionBook::write(std::uint32_t entry, Row row) {
  const std::uint64_t end = (std::uint64_t{entry} + 1) * sizeof(Row);
  if (end > mapping_.size_bytes()) return false;
  while (end > reserved_bytes_) {
    if (!file_.reserve(reserved_bytes_, kChunkBytes).ok()) return false;
    reserved_bytes_ += kChunkBytes;
  }
  rows()[entry] = row;
  return true;
}

VersionBook::Row VersionBook::row(std::uint32_t entry) const {
  const std::uint64_t end = (std::uint64_t{entry} + 1) * sizeof(Row);
  return end <= reserved_bytes_ ? rows()[entry] : Row{};
}

}  // namespace mc::agent
