// SPDX-License-Identifier: Apache-2.0
//
// The headers of a tier's disk, and the walk over a segment's records: any fields under checksums that
// are right, and any bytes. Each record that the walk finds lies within the segment.
#include <span>
#include <vector>

#include "agent/tier/log/record_walk.h"
#include "bytes.h"
#include "libmc/base/checksum.h"

namespace {

using mc::fuzz::require;
using mc::tier::kBlockBytes;
using mc::tier::kUnitBytes;

constexpr std::uint64_t kSegmentBytes = 64 * 1024;
constexpr mc::tier::RecordWalk::Segment kSegment{
    .id = 5, .sequence = 77, .life = 9, .bytes = kSegmentBytes};

// Mostly a small number of units, so that headers meet each other.
std::uint32_t units(mc::fuzz::Bytes& input) {
  return input.below(8) == 0 ? input.take<std::uint32_t>()
                             : input.below(kSegmentBytes / kUnitBytes);
}

template <typename Header>
void place(std::vector<std::byte>& bytes, std::uint64_t at, const Header& header) {
  if (at + sizeof(header) <= bytes.size()) std::memcpy(bytes.data() + at, &header, sizeof(header));
}

void place_record(mc::fuzz::Bytes& input, std::vector<std::byte>& bytes, std::uint64_t stamp,
                  std::uint64_t at) {
  mc::tier::RecordHeader record{.segment = kSegment.id};
  record.kind = static_cast<mc::tier::RecordKind>(input.below(4));
  record.unit = input.below(4) == 0 ? units(input) : static_cast<std::uint32_t>(at / kUnitBytes);
  record.key_bytes = static_cast<std::uint16_t>(input.below(100));
  record.length = input.below(4) == 0 ? input.take<std::uint64_t>() : input.below(5000);
  if (at + sizeof(record) + record.key_bytes > bytes.size()) return;
  const std::string_view key(reinterpret_cast<const char*>(bytes.data() + at + sizeof(record)),
                             record.key_bytes);
  seal(record, key, stamp);
  place(bytes, at, record);
}

void walk(mc::tier::RecordWalk records, std::uint64_t size) {
  std::uint64_t calls = 0, sum = 0;
  while (!records.done()) {
    require(++calls <= size / kUnitBytes + 2);
    const auto record = records.next();
    if (!record) continue;
    require(record->header.unit * kUnitBytes + record->header.record_bytes() <= kSegmentBytes);
    // The sanitizer sees reads beyond the bytes.
    sum += mc::checksum(0, record->key.data(), record->key.size());
    sum += mc::checksum(0, record->bytes.data(), record->bytes.size());
  }
  static_cast<void>(records.complete());
  static_cast<void>(sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mc::fuzz::Bytes input(data, size);
  const std::uint64_t stamp = mc::tier::stamp_of(kSegment.life, kSegment.sequence);
  std::vector<std::byte> bytes(kSegmentBytes);
  std::vector<std::byte> region(kBlockBytes * (1 + input.below(3)));
  mc::tier::Trailer trailer{.sequence = kSegment.sequence};
  trailer.footer_bytes = input.below(4) == 0 ? input.take<std::uint32_t>() : input.below(9000);
  while (!input.empty()) {
    switch (input.below(3)) {
      case 0:
        place_record(input, bytes, stamp, units(input) % (kSegmentBytes / kUnitBytes) * kUnitBytes);
        break;
      case 1:
        place_record(input, region, stamp, input.below(128) * kUnitBytes);
        break;
      default:
        input.fill(bytes.data() + input.below(kSegmentBytes - 64), input.below(64));
    }
  }
  for (const std::span<const std::byte> each :
       {std::span<const std::byte>(bytes), std::span<const std::byte>(region)}) {
    static_cast<void>(mc::tier::read_superblock(each));
    static_cast<void>(mc::tier::read_segment_header(each));
  }
  walk(mc::tier::RecordWalk::over_segment(kSegment, bytes), bytes.size());
  trailer.records = input.below(40);
  seal(trailer, stamp);
  place(region, region.size() - kBlockBytes, trailer);
  const std::uint64_t region_bytes = region.size();
  if (auto footer = mc::tier::RecordWalk::over_footer(kSegment, std::move(region))) {
    walk(std::move(*footer), region_bytes);
  }
  return 0;
}
