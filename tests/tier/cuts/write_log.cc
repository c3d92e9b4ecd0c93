// SPDX-License-Identifier: Apache-2.0
#include "tier/cuts/write_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tier/cuts/die.h"

namespace mc::tier::cuts {

namespace {

constexpr std::uint64_t kMagic = 0x6a736677736872, kVersion = 1;
constexpr std::uint64_t kFlush = 1, kFua = 2, kDiscard = 4, kMark = 8;
constexpr std::uint64_t kLargestSector = 4096, kMostSectors = 1u << 20;

struct SuperSector {
  std::uint64_t magic = 0, version = 0, entries = 0;
  std::uint32_t sector_bytes = 0;
};
struct EntrySector {
  std::uint64_t sector = 0, sectors = 0, flags = 0, data_bytes = 0;
};

}  // namespace

WriteLog::WriteLog(const std::string& device) : fd_(::open(device.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!fd_) die("cannot open " + device);
  std::vector<std::byte> block(kLargestSector);
  read(0, block);
  SuperSector super;
  std::memcpy(&super, block.data(), sizeof(super));
  if (super.magic != kMagic || super.version != kVersion) die(device + " has no log of writes");
  sector_bytes_ = super.sector_bytes;
  if (sector_bytes_ != 512 && sector_bytes_ != kLargestSector) die("odd sectors in the log");
  std::uint64_t at = sector_bytes_;
  for (std::uint64_t i = 0; i < super.entries; ++i) {
    read(at, std::span(block).first(sector_bytes_));
    EntrySector found;
    std::memcpy(&found, block.data(), sizeof(found));
    if (found.sectors > kMostSectors || found.data_bytes > sector_bytes_) die("a torn log");
    at += sector_bytes_;
    Entry entry{.offset = found.sector * sector_bytes_,
                .bytes = found.sectors * sector_bytes_,
                .data_at = at,
                .flush = (found.flags & kFlush) != 0,
                .fua = (found.flags & kFua) != 0,
                .discard = (found.flags & kDiscard) != 0};
    if ((found.flags & kMark) != 0) {
      const auto* const text = reinterpret_cast<const char*>(block.data()) + sizeof(found);
      entry.mark.assign(text, std::min(found.data_bytes, sector_bytes_ - sizeof(found)));
    }
    if (!entry.discard) at += entry.bytes;
    entries_.push_back(std::move(entry));
  }
}

std::vector<std::byte> WriteLog::data_of(const Entry& entry) const {
  std::vector<std::byte> data(entry.bytes);
  if (!entry.discard) read(entry.data_at, data);
  return data;
}

void WriteLog::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got <= 0) die("cannot read the log of writes");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace mc::tier::cuts
