// SPDX-License-Identifier: Apache-2.0
//
// What it is: which of several paths to a peer carries the next slice, and how large it is. A rail
//   is a pair of NICs or a TCP lane. Pure: no clock, no I/O; the same calls give the same answers.
//
//     cost(rail) = (bytes outstanding + bytes of the slice) / measured bandwidth     least wins,
//                  among the near rails with room in their windows, else among the far ones
//
//     down ── probe() ─► on_up() ─► recovering: 1 slice at a time, 2, 4 … ─► up
//      ▲                                │                                    │
//      └──────── on_failed(), also of what stalled() names ◄─────────────────┘
//
//   A rail that fails is left at once, its slices go elsewhere, and it is probed after a pause that
//   doubles until it has brought something again. A slow rail stays in use, with a window that
//   takes no longer to empty than those of the others: what is spread over all does not wait for
//   it.
// Threads: a value of its owner. Owns nothing; credits are shared by the rails of all peers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/flow/credits.h"
#include "transport/priority.h"

namespace mc::transport {

// What is known of a path before anything went over it.
struct RailTraits {
  double bytes_per_ns = 1.0;     // 1 GB/s until measured
  std::uint64_t latency_ns = 0;  // 0: not known
  std::uint32_t local_nic = 0;   // whose credits it uses
};

struct RailSlice {
  std::uint64_t bytes = 0;
  std::uint64_t sent_ns = 0;
  Priority priority = Priority::kForeground;
};

enum class RailHealth : std::uint8_t { kDown, kRecovering, kSlow, kUp };
const char* rail_health_name(RailHealth health);

// What a metric may tell of one rail.
struct RailStatus {
  RailHealth health = RailHealth::kDown;
  double bytes_per_ns = 0;  // measured, or what was said of it
  std::uint64_t latency_ns = 0;
  std::uint64_t outstanding_bytes = 0;
  std::uint64_t window_bytes = 0;
  std::uint64_t done_bytes = 0;
  std::uint64_t done_slices = 0;
  std::uint64_t failures = 0;           // times it was left
  std::uint64_t taken_back_slices = 0;  // that were under way then
};

class Rails {
 public:
  static constexpr std::uint64_t kAllNear = ~std::uint64_t{0};

  // Lanes of one path share its processors and its line: what one was seen to carry depends on what
  // it was given, and a window that followed it would take all from the others. So only those of
  // rails that are paths of their own do.
  enum class Paths : std::uint8_t { kOne, kSeparate };

  // window_slices: how many slices may be outstanding on one rail.
  explicit Rails(std::size_t count, std::uint32_t window_slices = 4, Paths paths = Paths::kOne);

  std::size_t count() const { return rails_.size(); }
  std::size_t up_count() const { return up_count_; }
  bool is_up(std::size_t rail) const { return rails_[rail].up; }
  void set_traits(std::size_t rail, const RailTraits& traits);
  // Outlives the rails, or null. Taken from and given back to by on_sent(), on_done(), on_failed().
  void share(Credits* credits) { credits_ = credits; }

  // The rail for a slice of that size, none if no window has room. near: bit 1 << rail for those
  // close to the memory; the others serve when these are full, and all beyond the 64th do.
  std::optional<std::size_t> choose(std::uint64_t bytes, std::uint64_t near = kAllNear,
                                    Priority priority = Priority::kForeground) const {
    const auto run = choose_run(bytes, near, priority);
    return run ? std::optional(run->rail) : std::nullopt;
  }
  // The same for several slices at once: until so many bytes have been sent there, at least those
  // asked for, it stays the one that would be chosen, if nothing else happens.
  struct Run {
    std::size_t rail = 0;
    std::uint64_t bytes = 0;
    bool is_only = false;  // and then there is room nowhere
  };
  std::optional<Run> choose_run(std::uint64_t bytes, std::uint64_t near = kAllNear,
                                Priority priority = Priority::kForeground) const;
  // Whether choose() found none only because other peers use the credits.
  bool lacks_credit(std::uint64_t bytes, Priority priority = Priority::kForeground) const;

  // Measures bandwidth and latency, and makes stalled() work. on_done() is not for slices of before
  // on_failed(): those are forgotten. Several that were sent, or found done, at once may be told
  // together: the bytes of all and their count.
  void on_sent(std::size_t rail, const RailSlice& slice, std::uint32_t count = 1);
  void on_done(std::size_t rail, const RailSlice& slice, std::uint64_t now_ns) {
    on_done(rail, slice, 1, now_ns);
  }
  void on_done(std::size_t rail, const RailSlice& slice, std::uint32_t count, std::uint64_t now_ns);
  // For who measures by himself: with on_measured().
  void on_sent(std::size_t rail, std::uint64_t bytes, Priority priority = Priority::kForeground);
  void on_done(std::size_t rail, std::uint64_t bytes, Priority priority = Priority::kForeground);
  // Bytes came in took_ns, during which the rail was never without work.
  void on_measured(std::size_t rail, std::uint64_t bytes, std::uint64_t took_ns);

  // What was outstanding there but will not come is forgotten.
  void on_failed(std::size_t rail, std::uint64_t now_ns);
  void on_up(std::size_t rail);
  // A rail that owes bytes and has brought none for kRailStallNs, or several times what a slice
  // takes there: to be cut and told to on_failed(), its slices to be sent elsewhere.
  std::optional<std::size_t> stalled(std::uint64_t now_ns) const;

  // A rail that is down and may be tried now. Each answer counts as a try.
  std::optional<std::size_t> probe(std::uint64_t now_ns);
  std::uint64_t next_probe_ns() const;

  // What takes about a third of a millisecond, or some round trips, on the fastest rail, within
  // limits; a transfer is spread over all rails that are up if its parts are not too small.
  std::uint32_t slice_bytes(std::uint64_t transfer_bytes) const;
  // What must be under way to keep the rail busy: also a budget for Credits.
  std::uint64_t window_bytes(std::size_t rail) const { return rails_[rail].window; }
  std::uint64_t outstanding_bytes(std::size_t rail) const { return rails_[rail].outstanding; }
  double bytes_per_ns(std::size_t rail) const { return rails_[rail].bytes_per_ns; }
  RailStatus status(std::size_t rail) const;

 private:
  struct Rail {
    RailTraits traits;
    bool up = false;
    std::uint32_t ramp_slices = 0;  // recovering: so many may be under way; 0: it is not
    std::uint32_t ramp_done = 0;
    std::uint32_t outstanding_slices = 0;
    std::uint64_t outstanding = 0;
    std::array<std::uint64_t, kPriorityCount> outstanding_of{};
    double bytes_per_ns = 1.0;
    std::uint64_t latency_ns = 0;
    std::uint64_t window = 0;  // follows from the others: see window_of()
    std::uint64_t pause_ns = 0;
    std::uint64_t probe_at_ns = 0;
    // Of the timed calls: since when it has had work, what came since, and the last sign of it.
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
  Room room(const Rail& rail, std::uint64_t bytes, Priority priority) const;
  // What more it takes. REQUIRES: room(rail, bytes, priority) is kFree; at least that is the
  // answer.
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
  bool alone_ = false;  // since all were idle, one slice was sent
  double fastest_ = 0;  // of those up; 0: none is
  std::uint64_t least_latency_ns_ = 0;
  // Slices that follow from these two.
  std::uint64_t whole_slice_ = 0;
  std::uint64_t least_slice_ = 0;
};

}  // namespace mc::transport
