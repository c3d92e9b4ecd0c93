// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/layout/layout.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "libmc/base/checksum.h"
#include "mc/limits.h"

namespace mc::tier {

static_assert(std::endian::native == std::endian::little, "the disk's numbers are little-endian");

namespace {

// Each kind of header starts its checksum from its magic, so that no header passes for another.
template <typename Header>
std::uint64_t sum_of(const Header& header, std::uint64_t stamp) {
  static_assert(std::is_trivially_copyable_v<Header>);
  return checksum(Header::kMagic ^ stamp, &header, offsetof(Header, checksum));
}

template <typename Header>
std::optional<Header> read_header(std::span<const std::byte> bytes, std::uint64_t stamp = 0) {
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != Header::kMagic || header.checksum != sum_of(header, stamp)) {
    return std::nullopt;
  }
  return header;
}

std::uint64_t sum_of(const RecordHeader& header, std::string_view key, std::uint64_t stamp) {
  const std::uint64_t sum =
      checksum(RecordHeader::kMagic ^ stamp, &header, offsetof(RecordHeader, header_checksum));
  return checksum(sum, key.data(), key.size());
}

}  // namespace

std::uint64_t stamp_of(std::uint64_t life, std::uint64_t sequence) {
  return checksum(life, &sequence, sizeof(sequence));
}

void seal(Superblock& superblock) { superblock.checksum = sum_of(superblock, 0); }
void seal(SegmentHeader& header) { header.checksum = sum_of(header, 0); }
void seal(Trailer& trailer, std::uint64_t stamp) { trailer.checksum = sum_of(trailer, stamp); }
void seal(RecordHeader& header, std::string_view key, std::uint64_t stamp) {
  header.header_checksum = sum_of(header, key, stamp);
}

std::optional<Superblock> read_superblock(std::span<const std::byte> bytes) {
  return read_header<Superblock>(bytes);
}

std::optional<SegmentHeader> read_segment_header(std::span<const std::byte> block) {
  return read_header<SegmentHeader>(block);
}

std::optional<Trailer> read_trailer(std::span<const std::byte> block, std::uint64_t life) {
  if (block.size() < sizeof(Trailer)) return std::nullopt;
  Trailer unchecked;
  std::memcpy(&unchecked, block.data(), sizeof(unchecked));
  return read_header<Trailer>(block, stamp_of(life, unchecked.sequence));
}

std::optional<RecordFront> read_record(std::span<const std::byte> bytes, std::uint64_t stamp) {
  if (bytes.size() < sizeof(RecordHeader)) return std::nullopt;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const bool known = header.kind == RecordKind::kObject || header.kind == RecordKind::kRemoval;
  if (header.magic != RecordHeader::kMagic || !known || header.key_bytes > MC_MAX_KEY_BYTES ||
      header.length > kLargestSegmentBytes ||
      bytes.size() < sizeof(RecordHeader) + header.key_bytes) {
    return std::nullopt;
  }
  const std::string_view key(reinterpret_cast<const char*>(bytes.data()) + sizeof(header),
                             header.key_bytes);
  if (header.header_checksum != sum_of(header, key, stamp)) return std::nullopt;
  return RecordFront{.header = header, .key = key};
}

std::uint64_t largest_object(std::uint64_t segment_bytes, std::size_t key_bytes) {
  const std::uint64_t front = round_up(sizeof(RecordHeader) + key_bytes, kUnitBytes);
  const std::uint64_t around = kHeaderBytes + front + footer_region_bytes(front) + kBlockBytes;
  return segment_bytes > around ? (segment_bytes - around) / kUnitBytes * kUnitBytes : 0;
}

}  // namespace mc::tier
