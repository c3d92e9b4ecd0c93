// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/segment_writer.h"

#include <cstring>
#include <utility>

#include "libmc/base/checksum.h"

namespace mc::tier {

namespace {

// Fills the memory of a job, which does not move, and adds pieces.
class Filling {
 public:
  Filling(Job& job, std::uint64_t own_bytes) : job_(job) {
    job.own.resize(own_bytes);
    at_ = job.own.data();
  }
  void add(const void* bytes, std::uint64_t size, std::uint64_t padded_size) {
    std::memcpy(at_, bytes, size);
    job_.pieces.push_back({at_, padded_size});
    at_ += padded_size;
  }
  void add_front(const RecordHeader& header, std::string_view key) {
    std::memcpy(at_ + sizeof(header), key.data(), key.size());
    add(&header, sizeof(header), header.front_bytes());
  }
  void add_zeros(std::uint64_t bytes) {
    if (bytes > 0) job_.pieces.push_back({nullptr, bytes});
  }

 private:
  Job& job_;
  std::byte* at_;
};

}  // namespace

void SegmentWriter::Size::add(const RecordHeader& header) {
  end_bytes += header.record_bytes();
  footer_bytes += header.front_bytes();
  if (header.kind == RecordKind::kRemoval) ++removals;
}

std::uint64_t SegmentWriter::Size::whole_end_bytes() const {
  const std::uint64_t end = round_up(end_bytes, kBlockBytes);
  return end + round_up(removals * RecordHeader{}.front_bytes(), kBlockBytes);
}

bool SegmentWriter::fits(const NewRecord& record) const {
  Size size{.end_bytes = begin_bytes(), .footer_bytes = footer_.size()};
  size.add(record.header);
  return fits(size);
}

SegmentWriter::Batch SegmentWriter::make_batch(std::deque<NewRecord>& queue,
                                               std::uint64_t max_bytes) {
  // First the sizes: pieces point into job.own, which must not move later.
  const bool first = end_bytes_ == 0;
  const std::uint64_t begin = begin_bytes();
  Size size{.end_bytes = begin, .footer_bytes = footer_.size()};
  std::size_t count = 0;
  for (const NewRecord& record : queue) {
    Size next = size;
    next.add(record.header);
    if (count == kMostInBatch || !fits(next)) break;
    if (count > 0 && next.end_bytes - begin > max_bytes) break;
    size = next;
    ++count;
  }
  Batch batch;
  Job& job = batch.job;
  job.kind = Job::Kind::kWrite;
  job.durable = true;
  job.offset = geometry_.offset + (first ? 0 : begin);
  job.bytes = size.whole_end_bytes() - (first ? 0 : begin);
  const std::uint64_t again_bytes = size.removals * RecordHeader{}.front_bytes();
  Filling filling(job,
                  (first ? kHeaderBytes : 0) + size.footer_bytes - footer_.size() + again_bytes);
  if (first) {
    SegmentHeader header{.life = geometry_.life,
                         .segment = segment_,
                         .copies = geometry_.copies ? 1u : 0u,
                         .sequence = sequence_};
    seal(header);
    filling.add(&header, sizeof(header), kBlockBytes);
    filling.add(&header, sizeof(header), kBlockBytes);
  }
  const auto add = [&](RecordHeader& header, std::string_view key, std::uint64_t at) {
    header.segment = segment_;
    header.unit = static_cast<std::uint32_t>(at / kUnitBytes);
    seal(header, key, stamp_);
    filling.add_front(header, key);
  };
  std::uint64_t end = begin;
  for (std::size_t i = 0; i < count; ++i) {
    NewRecord& record = queue.front();
    add(record.header, record.key, end);
    job.pieces.insert(job.pieces.end(), record.pieces.begin(), record.pieces.end());
    filling.add_zeros(round_up(record.header.length, kUnitBytes) - record.header.length);
    job.soon = job.soon || record.soon;
    add_to_footer(record.header, record.key);
    end += record.header.record_bytes();
    batch.records.push_back(std::move(record));
    queue.pop_front();
  }
  filling.add_zeros(round_up(end, kBlockBytes) - end);
  end = round_up(end, kBlockBytes);
  for (const NewRecord& record : batch.records) {
    if (record.header.kind != RecordKind::kRemoval) continue;
    RecordHeader again = record.header;
    add(again, record.key, end);
    end += again.record_bytes();
  }
  filling.add_zeros(size.whole_end_bytes() - end);
  end_bytes_ = size.whole_end_bytes();
  return batch;
}

void SegmentWriter::add_to_footer(const RecordHeader& header, std::string_view key) {
  const std::size_t at = footer_.size();
  const std::size_t end = at + header.front_bytes();
  // With room for the end of make_footer().
  if (end + kHeaderBytes > footer_.capacity()) footer_.reserve(2 * end + kHeaderBytes);
  footer_.resize(end);
  std::memcpy(footer_.data() + at, &header, sizeof(header));
  std::memcpy(footer_.data() + at + sizeof(header), key.data(), key.size());
  footer_checksum_ =
      checksum(footer_checksum_, &header.header_checksum, sizeof(header.header_checksum));
  max_order_ = std::max(max_order_, header.order);
  ++records_;
  if (header.kind == RecordKind::kRemoval) removal_orders_.insert(header.order);
}

Job SegmentWriter::make_footer(std::uint64_t sealed_order) {
  Trailer trailer{.sequence = sequence_,
                  .max_order = max_order_,
                  .footer_bytes = footer_bytes(),
                  .records = records_,
                  .removals = removals(),
                  .footer_checksum = footer_checksum_,
                  .sealed_order = sealed_order};
  seal(trailer, stamp_);
  const std::uint64_t region = footer_region_bytes(footer_.size());
  Job job;
  job.kind = Job::Kind::kWrite;
  job.durable = true;
  job.offset = geometry_.offset + geometry_.bytes - region;
  job.bytes = region;
  job.own = std::move(footer_);
  job.own.resize(region);
  std::memcpy(job.own.data() + region - kBlockBytes, &trailer, sizeof(trailer));
  job.pieces.push_back({job.own.data(), region});
  return job;
}

}  // namespace mc::tier
