// SPDX-License-Identifier: Apache-2.0
//
// What it is: which of several paths to a peer carries the next slice, and how large it is. A rail
//   is a pair of NICs or a TCP lane. Pure: no clock, no I/O; the same calls give the same answers.
//
//     cost(rail) = (bytes outstanding + bytes of the slice) / measured bandwidth     least wins
//
//   A rail that fails is left at once, its slices go elsewhere, and it is probed after a pause that
//   doubles.
// Threads: a value of its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace mc::transport {

class Rails {
 public:
  // window_slices: how many slices may be outstanding on one rail.
  explicit Rails(std::size_t count, std::uint32_t window_slices = 4);

  std::size_t count() const { return rails_.size(); }
  std::size_t up_count() const { return up_count_; }
  bool is_up(std::size_t rail) const { return rails_[rail].up; }

  // The rail for a slice of that size, none if no window has room.
  std::optional<std::size_t> choose(std::uint64_t bytes) const;
  void on_sent(std::size_t rail, std::uint64_t bytes);
  void on_done(std::size_t rail, std::uint64_t bytes);
  // Bytes came in took_ns, during which the rail was never without work.
  void on_measured(std::size_t rail, std::uint64_t bytes, std::uint64_t took_ns);
  // What was outstanding there but will not come is forgotten.
  void on_failed(std::size_t rail, std::uint64_t now_ns);
  void on_up(std::size_t rail);

  // A rail that is down and may be tried now. Each answer counts as a try.
  std::optional<std::size_t> probe(std::uint64_t now_ns);
  std::uint64_t next_probe_ns() const;

  // What takes about a third of a millisecond on this rail, within limits; a transfer is spread
  // over all rails that are up if its parts are not too small.
  std::uint32_t slice_bytes(std::uint64_t transfer_bytes) const;
  std::uint64_t outstanding_bytes(std::size_t rail) const { return rails_[rail].outstanding; }
  double bytes_per_ns(std::size_t rail) const { return rails_[rail].bytes_per_ns; }

 private:
  struct Rail {
    bool up = false;
    std::uint64_t outstanding = 0;
    double bytes_per_ns = 1.0;  // 1 GB/s until measured
    std::uint64_t pause_ns = 0;
    std::uint64_t probe_at_ns = 0;
  };
  std::uint64_t window_bytes(const Rail& rail) const;

  std::vector<Rail> rails_;
  std::uint32_t window_slices_;
  std::size_t up_count_ = 0;
};

}  // namespace mc::transport
