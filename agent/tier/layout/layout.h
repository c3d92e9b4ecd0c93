// SPDX-License-Identifier: Apache-2.0
//
// The bytes on a disk of the tier. Numbers are little-endian. A change here changes kFormat. A disk with a
//   later format is never written, and a disk with an earlier format is emptied.
//
//   disk      superblock │ superblock │ 0 … 0 │ segment 0 │ segment 1 │ …
//   segment   header │ header │ batch │ batch │ …   free   … │ footer │ trailer
//   batch     record │ record │ … │ 0 … 0 │ the removals of these once more │ 0 … 0   from block to block
//   record    RecordHeader │ key │ 0 … 0 │ bytes of the object │ 0 … 0   in units of 64 bytes
//   footer    RecordHeader │ key │ 0 … 0   of each record of the segment, and each removal once
//
//   Two copies of a header or of a removal are in different blocks. Without the trailer or the footer, all
//   bytes of the segment tell the same. So damage of one block costs only objects with bytes in the block.
//   The checksums of records and trailers start from the stamp of the segment (life of the disk and
//   sequence of the segment): bytes of an earlier use of the segment never count.
//
//   The order of a record is its number in the history of all puts and removals of the tier: of two
//   records of a key, the one with the higher order counts. A copy that the cleaner makes keeps the
//   order. Orders rise over restarts: the run of the agent is in the upper bits.
// Threads: pure functions over values.
// Trusts: nothing. The check_ and read_ functions accept any bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "agent/tier/layout/tier_key.h"

namespace mc::tier {

inline constexpr std::uint32_t kFormat = 2;
inline constexpr std::uint64_t kBlockBytes = 4096;  // the disk is read and written in blocks
inline constexpr std::uint64_t kUnitBytes = 64;
inline constexpr std::uint64_t kSuperblocks = 2;
inline constexpr std::uint64_t kFirstSegmentOffset = 64 * 1024;
inline constexpr std::uint64_t kSmallestSegmentBytes = 256 * 1024;
inline constexpr std::uint64_t kLargestSegmentBytes = 256 * 1024 * 1024;
inline constexpr std::uint32_t kMaxDisks = 64;
inline constexpr std::uint32_t kMaxSegmentsOfDisk = 1u << 24;
inline constexpr std::uint64_t kHeaderBytes =
    2 * kBlockBytes;                       // of a segment: a copy in each block
inline constexpr unsigned kRunShift = 40;  // of an order; the lower bits count within a run

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
constexpr std::uint32_t disk_of(std::uint32_t segment) { return segment >> 24; }
constexpr std::uint32_t number_of(std::uint32_t segment) { return segment & 0xffffff; }
constexpr std::uint32_t segment_id(std::uint32_t disk, std::uint32_t number) {
  return disk << 24 | number;
}

// The place of a record: the disk and its segment, and the offset of the record's header in the
// segment.
struct Place {
  std::uint32_t segment = 0;  // segment_id()
  std::uint32_t unit = 0;     // offset in kUnitBytes
  bool operator==(const Place&) const = default;
};

using TierId = std::array<unsigned char, 16>;

struct Superblock {
  static constexpr std::uint64_t kMagic = 0x3152454954434d00ull;
  std::uint64_t magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint32_t disk = 0;  // number of this disk in the tier
  std::uint64_t host = 0;  // the agent's node id; 0: unknown
  TierId tier{};
  TierId previous{};                // the tier that this one follows, without its objects
  std::uint64_t secret = 0;         // seed of TierKey
  std::uint64_t segment_bytes = 0;  // a multiple of kBlockBytes
  std::uint64_t segment_count = 0;
  std::uint64_t incarnation = 0;  // of the latest agent that used this disk
  // Segments with another life are free: a new life empties the disk. 0: a write failed, and the disk
  // may have records that were removed.
  std::uint64_t life = 0;
  // Number of the latest start that used this disk, and of the latest one in which removals may have
  // been acknowledged. A disk whose run is lower than the served run of another disk does not know
  // these removals, so the agent empties the disk.
  std::uint64_t run = 0;
  std::uint64_t served_run = 0;
  std::uint64_t members = 0;   // numbers of the disks of the served run, a bit each
  std::uint64_t checksum = 0;  // of the bytes before
};
static_assert(sizeof(Superblock) == 128);

struct SegmentHeader {
  static constexpr std::uint64_t kMagic = 0x314745534c43544dull;
  std::uint64_t magic = kMagic;
  std::uint64_t life = 0;      // of the disk
  std::uint32_t segment = 0;   // segment_id()
  std::uint32_t copies = 0;    // 1: the segment has copies of the cleaner
  std::uint64_t sequence = 0;  // the order at which the segment was opened; never used again
  std::uint64_t checksum = 0;
};
static_assert(sizeof(SegmentHeader) == 40);

inline constexpr unsigned kMarkBits = 6;

enum class RecordKind : std::uint8_t {
  kObject = 1,
  kRemoval = 2,  // records of the key with a lower order do not count; without key and bytes
};

struct RecordHeader {
  static constexpr std::uint32_t kMagic = 0x314f434d;
  std::uint32_t magic = kMagic;
  RecordKind kind = RecordKind::kObject;
  std::uint8_t marks = 0;  // for the caller; kMarkBits
  std::uint16_t key_bytes = 0;
  std::uint64_t length = 0;  // bytes of the object
  std::uint64_t hash = 0;    // TierKey
  std::uint64_t more = 0;
  std::uint32_t segment = 0;  // the place of this header: a misdirected write is found
  std::uint32_t unit = 0;
  std::uint32_t group = 0;  // of the object; 0: none
  std::uint32_t reserved_word = 0;
  std::uint64_t namespace_id = 0;
  std::uint64_t version = 0;
  std::uint64_t order = 0;
  std::uint64_t sum_seed = 0;     // the checksum starts from this number
  std::uint64_t checksum = 0;     // of the object's bytes
  std::uint64_t parent_hash = 0;  // TierKey::hash of the parent in the same namespace; 0: none
  std::uint64_t pool_parent =
      0;  // hash of the parent in the pool that has the hash sum_seed; 0: none
  std::uint64_t reserved[2] = {};
  std::uint64_t header_checksum = 0;  // of the bytes before and of the key

  TierKey tier_key() const { return {.hash = hash, .more = more}; }
  Place place() const { return {.segment = segment, .unit = unit}; }
  // Header and key, in units.
  std::uint64_t front_bytes() const {
    return round_up(sizeof(RecordHeader) + key_bytes, kUnitBytes);
  }
  // All bytes of the record.
  std::uint64_t record_bytes() const { return front_bytes() + round_up(length, kUnitBytes); }
};
static_assert(sizeof(RecordHeader) == 128);

struct Trailer {
  static constexpr std::uint64_t kMagic = 0x314c4941525443ull;
  std::uint64_t magic = kMagic;
  std::uint64_t sequence = 0;   // of the segment
  std::uint64_t max_order = 0;  // of its records
  std::uint32_t footer_bytes = 0;
  std::uint32_t records = 0;   // in the footer
  std::uint32_t removals = 0;  // of these, each order once
  std::uint32_t reserved = 0;
  // From the stamp on, of the checksums of all headers in the footer: blocks of an earlier footer of this
  // segment may be left.
  std::uint64_t footer_checksum = 0;
  std::uint64_t sealed_order = 0;  // the order at which the segment was full
  std::uint64_t checksum = 0;      // of the bytes before
};
static_assert(sizeof(Trailer) == kUnitBytes);

// The number from which checksums in a segment start.
std::uint64_t stamp_of(std::uint64_t life, std::uint64_t sequence);

// Set the checksum of a header whose other fields are complete.
void seal(Superblock& superblock);
void seal(SegmentHeader& header);
void seal(Trailer& trailer, std::uint64_t stamp);
void seal(RecordHeader& header, std::string_view key, std::uint64_t stamp);

// The header at the start of these bytes, if magic and checksum are right. A superblock of a later
// format is returned as well.
std::optional<Superblock> read_superblock(std::span<const std::byte> bytes);
std::optional<SegmentHeader> read_segment_header(std::span<const std::byte> block);
std::optional<Trailer> read_trailer(std::span<const std::byte> block, std::uint64_t life);
struct RecordFront {
  RecordHeader header;
  std::string_view key;  // points into the bytes
};
std::optional<RecordFront> read_record(std::span<const std::byte> bytes, std::uint64_t stamp);

// Bytes of the footer and the trailer, in whole blocks.
constexpr std::uint64_t footer_region_bytes(std::uint64_t footer_bytes) {
  return round_up(footer_bytes, kBlockBytes) + kBlockBytes;
}
// The largest object that fits an empty segment, with this key.
std::uint64_t largest_object(std::uint64_t segment_bytes, std::size_t key_bytes);

}  // namespace mc::tier
