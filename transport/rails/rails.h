// SPDX-License-Identifier: Apache-2.0
//
// The choice of the path to a peer for the next slice, and of the size of slices. A
//   rail is a pair of NICs or a TCP lane. Pure: no clock, no I/O; the same calls give the same
//   answers.
//
//     cost(rail) = (bytes outstanding + bytes of the slice) / measured bandwidth     least wins,
//                  among the near rails with room in their windows, else among the far rails
//
//     down ── probe() ─► on_up() ─► recovering: 1 slice at a time, 2, 4 … ─► up
//      ▲                                │                                    │
//      └──────── on_failed(), also of rails that stalled() names ◄───────────┘
//
//   A rail that fails is left at once, and the slices go to other rails. The rail is probed after a
//   pause, which doubles until the rail has brought bytes again. A slow rail stays in use. The
//   window of a slow rail takes no longer to empty than the windows of the other rails, so a
//   transfer over all rails does not wait for the slow rail.
// Threads: a value of the owner.
// Owns: nothing. The rails of all peers share the credits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/flow/credits.h"
#include "transport/priority.h"
#include "transport/rail_status.h"

namespace mc::transport {

// The properties of a path that are known before the first slice.
struct RailTraits {
  double bytes_per_ns = 1.0;     // 1 GB/s until measured
  std::uint64_t latency_ns = 0;  // 0: not known
  std::uint32_t local_nic = 0;   // the NIC whose credits the rail uses
};

struct RailSlice {
  std::uint64_t bytes = 0;
  std::uint64_t sent_ns = 0;
  Priority priority = Priority::kForeground;
};

class Rails {
 public:
  static constexpr std::uint64_t kAllNear = ~std::uint64_t{0};

  // Lanes of the same path share processors and line, so the measured bandwidth of a lane depends
  // on the lane's load. A window that followed that bandwidth would take all bytes from the other
  // lanes. So only the window of a separate path follows the bandwidth.
  enum class Paths : std::uint8_t { kOne, kSeparate };

  // window_slices: the number of slices that may be outstanding on a rail.
  explicit Rails(std::size_t count, std::uint32_t window_slices = 4, Paths paths = Paths::kOne);

  std::size_t count() const { return rails_.size(); }
  std::size_t up_count() const { return up_count_; }
  bool is_up(std::size_t rail) const { return rails_[rail].up; }
  void set_traits(std::size_t rail, const RailTraits& traits);
  // credits: null, or outlives the rails. on_sent() takes credit; on_done() and on_failed() return
  // the credit.
  void share(Credits* credits) { credits_ = credits; }

  // The rail for a slice of that size; none if no window has room. near: bit 1 << rail for the
  // rails close to the memory. The other rails serve when the near rails are full. Rails beyond the
  // 64th count as far.
  std::optional<std::size_t> choose(std::uint64_t bytes, std::uint64_t near = kAllNear,
                                    Priority priority = Priority::kForeground) const {
    const auto run = choose_run(bytes, near, priority);
    return run ? std::optional(run->rail) : std::nullopt;
  }
  // The same for several slices at once. The rail remains the right choice until Run::bytes, at
  // least the requested bytes, have been sent there, if no other call changes the rails.
  struct Run {
    std::size_t rail = 0;
    std::uint64_t bytes = 0;
    bool is_only = false;  // no other rail has room after the run
  };
  std::optional<Run> choose_run(std::uint64_t bytes, std::uint64_t near = kAllNear,
                                Priority priority = Priority::kForeground) const;
  // Whether choose() found no rail only because other peers use the credits.
  bool lacks_credit(std::uint64_t bytes, Priority priority = Priority::kForeground) const;

  // These calls measure bandwidth and latency, and stalled() needs them. on_done() must not be
  // called for slices sent before on_failed(), which are forgotten. Several slices that were sent,
  // or found done, at once may be reported together: the bytes and the count of all slices.
  void on_sent(std::size_t rail, const RailSlice& slice, std::uint32_t count = 1);
  void on_done(std::size_t rail, const RailSlice& slice, std::uint64_t now_ns) {
    on_done(rail, slice, 1, now_ns);
  }
  void on_done(std::size_t rail, const RailSlice& slice, std::uint32_t count, std::uint64_t now_ns);
  // For callers that supply measurements by on_measured().
  void on_sent(std::size_t rail, std::uint64_t bytes, Priority priority = Priority::kForeground);
  void on_done(std::size_t rail, std::uint64_t bytes, Priority priority = Priority::kForeground);
  // Bytes arrived in took_ns, during which the rail always had work.
  void on_measured(std::size_t rail, std::uint64_t bytes, std::uint64_t took_ns);

  // Forgets the outstanding slices of the rail, which will not complete.
  void on_failed(std::size_t rail, std::uint64_t now_ns);
  void on_up(std::size_t rail);
  // A rail that owes bytes and has brought none for kRailStallNs, or for several times the duration
  // of a slice there. The caller cuts the rail, calls on_failed() and sends the slices elsewhere.
  std::optional<std::size_t> stalled(std::uint64_t now_ns) const;

  // A rail that is down and may be tried now. Each answer counts as a try.
  std::optional<std::size_t> probe(std::uint64_t now_ns);
  std::uint64_t next_probe_ns() const;

  // The bytes that take about a third of a millisecond, or some round trips, on the fastest rail,
  // within limits. A transfer is spread over all rails that are up, unless the parts would be too
  // small.
  std::uint32_t slice_bytes(std::uint64_t transfer_bytes) const;
  // The bytes that must be under way to keep the rail busy: also a budget for Credits.
  std::uint64_t window_bytes(std::size_t rail) const { return rails_[rail].window; }
  std::uint64_t outstanding_bytes(std::size_t rail) const { return rails_[rail].outstanding; }
  double bytes_per_ns(std::size_t rail) const { return rails_[rail].bytes_per_ns; }
  RailStatus status(std::size_t rail) const;

 private:
  struct Rail {
    RailTraits traits;
    bool up = false;
    std::uint32_t ramp_slices = 0;  // recovering: slices that may be under way; 0: not recovering
    std::uint32_t ramp_done = 0;
    std::uint32_t outstanding_slices = 0;
    std::uint64_t outstanding = 0;
    std::array<std::uint64_t, kPriorityCount> outstanding_of{};
    double bytes_per_ns = 1.0;
    std::uint64_t latency_ns = 0;
    std::uint64_t window = 0;  // derived from the other fields: see window_of()
    std::uint64_t pause_ns = 0;
    std::uint64_t probe_at_ns = 0;
    // From the timed calls: the begin of the busy time, the bytes since then, the last completion.
    std::uint64_t busy_since_ns = 0;
    std::uint64_t busy_bytes = 0;
    bool began_idle = false;
    std::uint64_t progress_ns = 0;
    std::uint64_t done_bytes = 0;
    std::uint64_t done_slices = 0;
    std::uint64_t failures = 0;
    std::uint64_t taken_back_slices = 0;
  };
  enum class Room { kFree, kFull, kNoCredit };

  std::uint64_t window_of(const Rail& rail) const;
  std::uint64_t share_of(const Rail& rail, Priority priority) const;
  Room room(const Rail& rail, std::uint64_t bytes, Priority priority) const;
  // The bytes that the rail still takes, at least `bytes`. REQUIRES: room(rail, bytes, priority) is
  // kFree.
  std::uint64_t room_bytes(const Rail& rail, std::uint64_t bytes, Priority priority) const;
  double fastest() const;
  void find_fastest();
  void add(Rail& rail, std::uint64_t bytes, Priority priority, std::uint32_t count = 1);
  void remove(Rail& rail, std::uint64_t bytes, Priority priority, std::uint32_t count = 1);
  void on_latency(Rail& rail, double waited_ns);
  void measure(Rail& rail);
  void climb(Rail& rail, std::uint32_t done_count);

  std::vector<Rail> rails_;
  std::uint32_t window_slices_;
  Paths paths_;
  Credits* credits_ = nullptr;
  std::size_t up_count_ = 0;
  std::uint32_t outstanding_slices_ = 0;
  // Of each class: the bytes sent since a higher class sent a slice.
  std::array<std::uint64_t, kPriorityCount> alone_bytes_{};
  bool alone_ = false;  // a slice was sent since all rails were idle
  double fastest_ = 0;  // of the rails that are up; 0: none is up
  std::uint64_t least_latency_ns_ = 0;
  // Slice sizes derived from the two fields above.
  std::uint64_t whole_slice_ = 0;
  std::uint64_t least_slice_ = 0;
};

}  // namespace mc::transport
