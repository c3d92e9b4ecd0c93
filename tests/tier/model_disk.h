// SPDX-License-Identifier: Apache-2.0
//
// A disk in memory with faults, a volatile cache and a time of its own. A seeded random source
//   drives the faults: the same seed and calls give the same faults.
//
//     submit() ─► under way ─► at its time: carried out ─► take_ended()
//                                  │ write
//                                  ▼
//                          unflushed writes ── flush ──► durable bytes
//                                  └── power_cut(): each sector is kept or lost ──► image
//
//   Reads see all writes that were carried out. A flush makes the writes durable that were carried
//   out before its submission. After a failed flush, reads still see the unflushed writes, but no
//   later flush makes these writes durable. The kernel treats its cache so after a failed fsync.
//   Flipped bits, misdirected writes and lost writes break the contract of Disk. Checksums and
//   places in records must find these faults.
// Threads: as Disk. set_now() and the faults belong to the thread that submits.
// Owns: the bytes.
// Trusts: nothing. A call that breaks a REQUIRES of Disk ends the process.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "agent/tier/disk/disk.h"
#include "tier/sparse_bytes.h"

namespace mc::tier::testing {

// The part of a write that a power cut keeps or loses as a whole.
inline constexpr std::uint32_t kSectorBytes = 512;

// Probabilities from 0 to 1, for each operation independently.
struct DiskFaults {
  double fail_read = 0;   // ends with `error`; the memory then holds anything
  double fail_write = 0;  // ends with `error`; each sector is written or not
  double fail_flush = 0;  // ends with `error`; the unflushed writes never become durable
  double flip_bit = 0;    // a read returns one wrong bit, and the disk holds the right one
  double misdirect = 0;   // a write lands at another place
  double lose = 0;        // a write ends without an error and lands nowhere
  double delay = 0;       // is carried out later
  double reorder = 0;     // is carried out in time, but the end comes after later ends
  int error = EIO;
  std::uint64_t min_delay_ns = 1'000;
  std::uint64_t max_delay_ns = 1'000'000;
};

// Times of a healthy disk. 0: an operation ends at once.
struct DiskSpeed {
  std::uint64_t read_ns = 0;
  std::uint64_t write_ns = 0;
  std::uint64_t flush_ns = 0;
  std::uint64_t block_ns = 0;  // in addition, for each block of a read or write
};

struct DiskCounts {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t read_bytes = 0;     // of reads without an error
  std::uint64_t written_bytes = 0;  // of writes without an error
  std::uint64_t failed = 0;
  std::uint64_t flipped = 0;
  std::uint64_t misdirected = 0;
  std::uint64_t lost = 0;
  std::uint64_t delayed = 0;
  std::uint64_t reordered = 0;
};

class ModelDisk : public Disk {
 public:
  using Kind = BlockOperation::Kind;
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // image: what power_cut() or image() of another disk gave.
  ModelDisk(std::uint64_t bytes, std::uint64_t seed, SparseBytes image = {},
            std::uint32_t depth = kDepth);

  void set_faults(const DiskFaults& faults) { faults_ = faults; }
  void set_speed(const DiskSpeed& speed) { speed_ = speed; }
  // Operations that are submitted from now on take this many times as long.
  void set_slowness(double factor) { slowness_ = factor; }
  // The next `count` operations of the kind end with the errno. Replaces an earlier call.
  void fail_next(Kind kind, std::uint64_t count, int error);
  // Reads or writes that touch the range end with the errno, until heal().
  void fail_range(Kind kind, std::uint64_t offset, std::uint64_t bytes, int error);
  // Changes a stored bit. A later write of the byte repairs the bit.
  void flip_bit(std::uint64_t offset, unsigned bit);
  // Only the next read of the byte returns the wrong bit.
  void flip_bit_in_next_read(std::uint64_t offset, unsigned bit);
  // The next write lands at `offset` instead.
  void misdirect_next_write(std::uint64_t offset);
  // The next write ends without an error and lands nowhere.
  void lose_next_write() { loses_next_ = true; }
  // DiskShape::sector_bytes. Power cuts keep or lose kSectorBytes in any case.
  void set_read_sector(std::uint32_t bytes) { read_sector_bytes_ = bytes; }
  // Ends all faults of set_faults(), set_slowness() and the calls above.
  void heal();
  // All operations end with ENODEV, those under way too, for ever.
  void vanish();
  bool vanished() const { return vanished_; }

  // The bytes that the next start finds: all flushed ones, and a random choice of the sectors of
  // writes that are unflushed or under way. The disk vanishes.
  SparseBytes power_cut();
  // The bytes that reads see.
  const SparseBytes& image() const { return visible_; }

  // Lets operations end whose time has come. An earlier time than the present one has no effect.
  void set_now(std::uint64_t now_ns);
  std::uint64_t now_ns() const { return now_ns_; }
  // The time of the next end. 0: an end waits for take_ended(). kNever: nothing is under way.
  std::uint64_t next_end_ns() const;
  std::uint32_t under_way() const { return under_way_; }
  const DiskCounts& counts() const { return counts_; }

  DiskShape shape() const override { return {.bytes = bytes_, .sector_bytes = read_sector_bytes_}; }
  std::uint32_t depth() const override { return depth_; }
  void submit(const BlockOperation& operation) override;
  void take_ended(std::vector<BlockEnd>& ended) override;
  // Takes no time of the process. Moves the disk's time on to the next end or to the timeout.
  void wait(std::uint64_t timeout_ns) override;
  void wake() override { woken_.store(true); }

 private:
  struct Flight {
    BlockOperation operation;
    std::uint64_t target = 0;       // where a write lands
    std::uint64_t carried_out = 0;  // writes carried out before the submission
    std::uint64_t late_ns = 0;      // from carrying out to the end
    int error = 0;
    bool flips = false;
    bool lost = false;
  };
  struct Unflushed {
    std::uint64_t order = 0;  // number of the write in the order of carrying out
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  struct BadRange {
    Kind kind;
    std::uint64_t offset;
    std::uint64_t bytes;
    int error;
  };
  struct FailNext {
    std::uint64_t count = 0;
    int error = 0;
  };
  struct Flip {
    std::uint64_t offset;
    unsigned bit;
  };

  std::uint64_t next();  // SplitMix64
  double chance() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool happens(double probability) { return chance() < probability; }
  std::uint64_t some_delay_ns();
  std::uint64_t healthy_ns(const BlockOperation& operation) const;
  FailNext& fail_next(Kind kind) { return fail_next_[static_cast<std::size_t>(kind)]; }
  void check(const BlockOperation& operation) const;
  int plan_error(const BlockOperation& operation);
  void plan_write(Flight& flight);
  void carry_out(Flight& flight);
  void read(const Flight& flight);
  void write(const Flight& flight);
  void flush(const Flight& flight);
  void keep(std::uint64_t offset, std::span<const std::byte> bytes);
  void tear(SparseBytes& image, std::uint64_t offset, std::span<const std::byte> bytes);

  const std::uint64_t bytes_;
  std::uint32_t read_sector_bytes_ = kSectorBytes;
  const std::uint32_t depth_;
  std::uint64_t random_;
  DiskFaults faults_;
  DiskSpeed speed_;
  double slowness_ = 1;
  FailNext fail_next_[3];
  std::vector<BadRange> bad_ranges_;
  std::vector<Flip> next_flips_;
  std::uint64_t misdirect_next_ = kNever;
  bool loses_next_ = false;
  bool vanished_ = false;

  std::uint64_t now_ns_ = 0;
  std::uint64_t carried_out_ = 0;                 // writes
  std::uint32_t under_way_ = 0;                   // until take_ended()
  std::multimap<std::uint64_t, Flight> flights_;  // by the time of carrying out
  std::multimap<std::uint64_t, BlockEnd> late_;   // by the time of the end
  std::vector<BlockEnd> ended_;
  SparseBytes visible_;
  SparseBytes durable_;
  std::vector<Unflushed> unflushed_;
  DiskCounts counts_;
  std::atomic<bool> woken_ = false;
};

}  // namespace mc::tier::testing
