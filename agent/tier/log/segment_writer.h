// SPDX-License-Identifier: Apache-2.0
//
// An open segment: gathers records into batches, and the headers of all its records into the footer.
//   The footer always has room behind the last batch. A removal is written twice, in different blocks.
// Threads: the agent's loop.
// Owns: the bytes of the footer.
// Trusts: its caller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "agent/tier/jobs/disk_jobs.h"
#include "agent/tier/layout/layout.h"

namespace mc::tier {

// A record that waits for its batch, or whose batch is being written.
struct NewRecord {
  RecordHeader header = {};  // without place and checksum
  std::string key = {};
  std::vector<Piece> pieces = {};         // the object's bytes
  std::unique_ptr<std::byte[]> own = {};  // memory for pieces
  std::uint64_t ticket = 0;               // of the put or removal; 0: a copy of the cleaner
  Place from = {};                        // of a copy
  bool soon = false;                      // a client waits
  std::uint64_t since_ns = 0;
};

class SegmentWriter {
 public:
  struct Geometry {
    std::uint64_t offset = 0;  // of the segment, in bytes of the disk
    std::uint64_t bytes = 0;
    std::uint64_t life = 0;  // of the disk
    bool copies = false;     // the segment has copies of the cleaner
  };
  static constexpr std::uint64_t kMostFooterBytes = 4 << 20;
  SegmentWriter(std::uint32_t segment, std::uint64_t sequence, const Geometry& geometry)
      : segment_(segment),
        sequence_(sequence),
        geometry_(geometry),
        stamp_(stamp_of(geometry.life, sequence)),
        footer_checksum_(stamp_) {}

  std::uint32_t segment() const { return segment_; }
  std::uint64_t sequence() const { return sequence_; }
  bool copies() const { return geometry_.copies; }
  // Different ones: a crash during cleaning may leave a removal twice.
  std::uint32_t removals() const { return static_cast<std::uint32_t>(removal_orders_.size()); }
  // Recovery: an earlier footer of this segment may be on the disk, or only one good header. Such a segment
  // gets a footer, but no further batch.
  void end_batches() { may_go_on_ = false; }
  bool may_go_on() const { return may_go_on_; }
  std::uint32_t footer_bytes() const { return static_cast<std::uint32_t>(footer_.size()); }
  // Header and key of each record so far, as in a footer.
  std::span<const std::byte> headers() const { return footer_; }
  // Whether a batch with this record fits behind the last one.
  bool fits(const NewRecord& record) const;
  struct Batch {
    Job job;  // without id and urgency
    std::vector<NewRecord> records;
  };
  // A batch of the first records of the queue, at most kMostInBatch, up to about max_bytes. REQUIRES:
  // the first record fits.
  Batch make_batch(std::deque<NewRecord>& queue, std::uint64_t max_bytes);
  static constexpr std::size_t kMostInBatch = 256;
  // The write that seals the segment, without id and urgency. REQUIRES: all batches are durable, and no
  // other batch or footer follows.
  Job make_footer(std::uint64_t sealed_order);

  // A record of the segment; make_batch() and recovery add each record once.
  void add_to_footer(const RecordHeader& header, std::string_view key);
  // Recovery: batches follow behind the last record.
  void set_end(std::uint64_t bytes) {
    end_bytes_ = std::max(kHeaderBytes, round_up(bytes, kBlockBytes));
  }
  // Whether the footer of the recovered records has room.
  bool has_room_for_footer() const { return fits_after(end_bytes_, footer_.size()); }

 private:
  struct Size {
    std::uint64_t end_bytes = 0;  // of the records, in the segment
    std::uint64_t removals = 0;
    std::uint64_t footer_bytes = 0;
    void add(const RecordHeader& header);
    // With the second copies of the removals, and the zeros up to a block.
    std::uint64_t whole_end_bytes() const;
  };
  bool fits_after(std::uint64_t end_bytes, std::uint64_t footer_bytes) const {
    return end_bytes + footer_region_bytes(footer_bytes) <= geometry_.bytes;
  }
  bool fits(const Size& size) const {
    return size.footer_bytes <= kMostFooterBytes &&
           fits_after(size.whole_end_bytes(), size.footer_bytes);
  }
  std::uint64_t begin_bytes() const { return end_bytes_ == 0 ? kHeaderBytes : end_bytes_; }

  std::uint32_t segment_;
  std::uint64_t sequence_;
  Geometry geometry_;
  std::uint64_t stamp_;
  std::uint64_t footer_checksum_;
  std::uint64_t end_bytes_ = 0;  // of the last batch; 0: the header is not written yet
  std::uint64_t max_order_ = 0;
  std::uint32_t records_ = 0;
  std::unordered_set<std::uint64_t> removal_orders_;
  bool may_go_on_ = true;
  std::vector<std::byte> footer_;
};

}  // namespace mc::tier
