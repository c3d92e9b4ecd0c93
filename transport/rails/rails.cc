// SPDX-License-Identifier: Apache-2.0
#include "transport/rails/rails.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "transport/limits.h"

namespace mc::transport {

namespace {

constexpr double kSliceNs = 330'000;
constexpr double kSliceRoundTrips = 4;
constexpr double kWeightOfNew = 0.2;
constexpr double kWeightOfLaterLatency = 1.0 / 16;
// A measurement beyond these limits is of a cache or of a hiccup, not of the path.
constexpr double kMinBytesPerNs = 1e-6;
constexpr double kMaxBytesPerNs = 100;
constexpr std::uint64_t kSpreadBytes = 256 * 1024;
// A shorter measurement mostly measures the clock.
constexpr std::uint64_t kMinMeasureNs = 50'000;
constexpr double kSlowShare = 0.5;
constexpr double kStallSlices = 8;
constexpr double kMaxWindowBytes = 64.0 * 1024 * 1024;
// A lower class that has sent so many windows since a higher class sent a slice is alone. On lanes
// this takes some 20 ms, so a caller who reads one object after another counts as present.
constexpr std::uint64_t kAloneWindows = 64;
// For a separate path. A caller that waits for the bytes of a small window measures the window, not
// the path.
constexpr double kLeastWindowBytes = 4.0 * kMaxSliceBytes;

std::uint32_t slice_for(double bytes_per_ns, std::uint64_t latency_ns) {
  const double slice_ns = std::max(kSliceNs, kSliceRoundTrips * static_cast<double>(latency_ns));
  const double bytes =
      std::clamp(bytes_per_ns * slice_ns, double{kMinSliceBytes}, double{kMaxSliceBytes});
  return std::bit_floor(static_cast<std::uint32_t>(bytes));
}

}  // namespace

const char* rail_health_name(RailHealth health) {
  switch (health) {
    case RailHealth::kDown:
      return "down";
    case RailHealth::kRecovering:
      return "recovering";
    case RailHealth::kSlow:
      return "slow";
    case RailHealth::kUp:
      return "up";
  }
  return "?";
}

Rails::Rails(std::size_t count, std::uint32_t window_slices, Paths paths)
    : rails_(count), window_slices_(window_slices), paths_(paths) {
  find_fastest();
}

void Rails::set_traits(std::size_t rail, const RailTraits& traits) {
  Rail& at = rails_[rail];
  at.traits = traits;
  at.bytes_per_ns = std::clamp(traits.bytes_per_ns, kMinBytesPerNs, kMaxBytesPerNs);
  at.latency_ns = traits.latency_ns;
  find_fastest();
}

// ---- Which rail -------------------------------------------------------------------------------

void Rails::find_fastest() {
  fastest_ = 0;
  least_latency_ns_ = 0;
  for (const Rail& rail : rails_) {
    if (!rail.up) continue;
    fastest_ = std::max(fastest_, rail.bytes_per_ns);
    if (rail.latency_ns == 0) continue;
    least_latency_ns_ =
        least_latency_ns_ == 0 ? rail.latency_ns : std::min(least_latency_ns_, rail.latency_ns);
  }
  whole_slice_ = slice_for(fastest(), least_latency_ns_);
  least_slice_ = std::min(kSpreadBytes, whole_slice_);
  if (least_latency_ns_ > 0) {
    // Parts that take less time than a round trip gain nothing.
    const double trip = fastest() * static_cast<double>(least_latency_ns_);
    least_slice_ = std::min(least_slice_, std::bit_ceil(std::max(static_cast<std::uint64_t>(trip),
                                                                 std::uint64_t{kMinSliceBytes})));
  }
  for (Rail& rail : rails_) rail.window = window_of(rail);
}

double Rails::fastest() const { return std::max(fastest_, kMinBytesPerNs); }

// Enough slices, or two round trips of bytes. A slow rail has no more bytes than leave in the time
// in which the fastest rail empties the window.
std::uint64_t Rails::window_of(const Rail& rail) const {
  const std::uint64_t latency_ns = rail.latency_ns > 0 ? rail.latency_ns : least_latency_ns_;
  const double least = paths_ == Paths::kSeparate ? kLeastWindowBytes : 0;
  const double own = std::max({1.0 * slice_for(rail.bytes_per_ns, latency_ns) * window_slices_,
                               2 * rail.bytes_per_ns * static_cast<double>(latency_ns), least});
  const double best =
      std::max(1.0 * slice_for(fastest(), least_latency_ns_) * window_slices_, least);
  const double in_step = std::max(best / fastest(), 2 * static_cast<double>(latency_ns)) *
                         std::min(rail.bytes_per_ns, fastest());
  const bool follows = paths_ == Paths::kSeparate && fastest_ > 0;
  double bytes = follows ? std::min(own, in_step) : own;
  if (rail.ramp_slices > 0) {
    bytes = std::min(bytes, 1.0 * slice_for(rail.bytes_per_ns, 0) * rail.ramp_slices);
  }
  return static_cast<std::uint64_t>(std::min(bytes, kMaxWindowBytes));
}

// A class beside higher classes leaves room in the window, so that a slice of a higher class finds
// some. A class that is alone has the whole window.
std::uint64_t Rails::share_of(const Rail& rail, Priority priority) const {
  const auto i = static_cast<std::size_t>(priority);
  return alone_bytes_[i] >= kAloneWindows * rail.window ? rail.window : rail.window >> i;
}

Rails::Room Rails::room(const Rail& rail, std::uint64_t bytes, Priority priority) const {
  if (!rail.up) return Room::kFull;
  const std::uint64_t window = rail.window;
  if (rail.outstanding > 0 && rail.outstanding + bytes > window) return Room::kFull;
  const std::uint64_t own = rail.outstanding_of[static_cast<std::size_t>(priority)];
  if (own > 0 && own + bytes > share_of(rail, priority)) return Room::kFull;
  if (credits_ != nullptr && !credits_->has(rail.traits.local_nic, bytes)) return Room::kNoCredit;
  return Room::kFree;
}

std::uint64_t Rails::room_bytes(const Rail& rail, std::uint64_t bytes, Priority priority) const {
  const auto left = [](std::uint64_t most, std::uint64_t used) {
    return most - std::min(most, used);
  };
  const std::uint64_t own = rail.outstanding_of[static_cast<std::size_t>(priority)];
  std::uint64_t free =
      std::min(left(rail.window, rail.outstanding), left(share_of(rail, priority), own));
  if (credits_ != nullptr) {
    const std::uint32_t nic = rail.traits.local_nic;
    free = std::min(free, left(credits_->budget(nic), credits_->outstanding_bytes(nic)));
  }
  return std::max(free, bytes);
}

std::optional<Rails::Run> Rails::choose_run(std::uint64_t bytes, std::uint64_t near,
                                            Priority priority) const {
  if (rails_.size() == 1) {
    const Rail& only = rails_.front();
    if (room(only, bytes, priority) != Room::kFree) return std::nullopt;
    return Run{0, room_bytes(only, bytes, priority), true};
  }
  const Rail* best = nullptr;
  bool best_near = false;
  double best_cost = 0;
  double next_cost = std::numeric_limits<double>::infinity();  // of rails as near as the best
  bool is_only = true;
  for (const Rail& rail : rails_) {
    if (room(rail, bytes, priority) != Room::kFree) continue;
    const auto i = static_cast<std::size_t>(&rail - rails_.data());
    const bool is_near = i < 64 && (near >> i & 1) != 0;
    const double cost = static_cast<double>(rail.outstanding + bytes) / rail.bytes_per_ns;
    is_only = best == nullptr;
    if (best == nullptr || (is_near && !best_near) || (is_near == best_near && cost < best_cost)) {
      next_cost = best != nullptr && is_near == best_near ? best_cost
                                                          : std::numeric_limits<double>::infinity();
      best = &rail;
      best_near = is_near;
      best_cost = cost;
    } else if (is_near == best_near) {
      next_cost = std::min(next_cost, cost);
    }
  }
  if (best == nullptr) return std::nullopt;
  std::uint64_t run = room_bytes(*best, bytes, priority);
  const double equal = next_cost * best->bytes_per_ns - static_cast<double>(best->outstanding);
  if (equal < static_cast<double>(run)) run = std::max(static_cast<std::uint64_t>(equal), bytes);
  return Run{static_cast<std::size_t>(best - rails_.data()), run, is_only};
}

bool Rails::lacks_credit(std::uint64_t bytes, Priority priority) const {
  bool lacks = false;
  for (const Rail& rail : rails_) {
    const Room found = room(rail, bytes, priority);
    if (found == Room::kFree) return false;
    lacks = lacks || found == Room::kNoCredit;
  }
  return lacks;
}

std::uint32_t Rails::slice_bytes(std::uint64_t transfer_bytes) const {
  const std::uint64_t ways = std::max<std::uint64_t>(up_count_, 1);
  const std::uint64_t share = (transfer_bytes + ways) / ways;
  return static_cast<std::uint32_t>(
      std::min(whole_slice_, std::max(least_slice_, std::bit_ceil(share))));
}

// ---- Slices sent and done ----------------------------------------------------------------------

void Rails::add(Rail& rail, std::uint64_t bytes, Priority priority, std::uint32_t count) {
  rail.outstanding += bytes;
  rail.outstanding_of[static_cast<std::size_t>(priority)] += bytes;
  rail.outstanding_slices += count;
  outstanding_slices_ += count;
  const auto sent = static_cast<std::size_t>(priority);
  alone_bytes_[sent] += bytes;
  std::fill(alone_bytes_.begin() + static_cast<std::ptrdiff_t>(sent) + 1, alone_bytes_.end(), 0);
  alone_ = outstanding_slices_ == 1;
  if (credits_ != nullptr) credits_->take(rail.traits.local_nic, bytes);
}

void Rails::remove(Rail& rail, std::uint64_t bytes, Priority priority, std::uint32_t count) {
  const std::uint64_t known = std::min(rail.outstanding, bytes);
  if (credits_ != nullptr) credits_->give_back(rail.traits.local_nic, known);
  rail.outstanding -= known;
  std::uint64_t& own = rail.outstanding_of[static_cast<std::size_t>(priority)];
  own -= std::min(own, bytes);
  const std::uint32_t known_count = std::min(rail.outstanding_slices, count);
  rail.outstanding_slices -= known_count;
  outstanding_slices_ -= known_count;
  rail.done_bytes += bytes;
  rail.done_slices += count;
  if (rail.ramp_slices > 0) climb(rail, count);
}

void Rails::on_sent(std::size_t rail, std::uint64_t bytes, Priority priority) {
  add(rails_[rail], bytes, priority);
}

void Rails::on_done(std::size_t rail, std::uint64_t bytes, Priority priority) {
  remove(rails_[rail], bytes, priority);
}

void Rails::on_sent(std::size_t rail, const RailSlice& slice, std::uint32_t count) {
  Rail& at = rails_[rail];
  if (at.outstanding == 0) {
    at.busy_since_ns = slice.sent_ns;
    at.progress_ns = slice.sent_ns;
    at.busy_bytes = 0;
    at.began_idle = true;
  }
  add(at, slice.bytes, slice.priority, count);
}

void Rails::on_done(std::size_t rail, const RailSlice& slice, std::uint32_t count,
                    std::uint64_t now_ns) {
  Rail& at = rails_[rail];
  // Slices that a turn of a loop found done are measured together.
  if (now_ns > at.progress_ns) measure(at);
  // Only a slice that was alone on its way measures the latency.
  if (alone_ && slice.sent_ns == at.busy_since_ns) {
    const double moving_ns = static_cast<double>(slice.bytes) / at.bytes_per_ns;
    on_latency(at, static_cast<double>(now_ns - slice.sent_ns) - moving_ns);
  }
  at.busy_bytes += slice.bytes;
  at.progress_ns = now_ns;
  remove(at, slice.bytes, slice.priority, count);
  if (at.outstanding == 0) measure(at);
}

// The smallest latency counts at once, and later latencies count slowly.
void Rails::on_latency(Rail& rail, double waited_ns) {
  if (waited_ns <= 0) return;
  const auto before_ns = static_cast<double>(rail.latency_ns);
  const double latency_ns = rail.latency_ns == 0 || waited_ns < before_ns
                                ? waited_ns
                                : before_ns + kWeightOfLaterLatency * (waited_ns - before_ns);
  rail.latency_ns = static_cast<std::uint64_t>(latency_ns);
  rail.window = window_of(rail);
}

void Rails::measure(Rail& rail) {
  std::uint64_t took_ns = rail.progress_ns - rail.busy_since_ns;
  if (took_ns < kMinMeasureNs) return;
  // The time of the first bytes after idleness includes the way of the request.
  if (rail.began_idle) took_ns -= std::min(rail.latency_ns, took_ns / 2);
  on_measured(static_cast<std::size_t>(&rail - rails_.data()), rail.busy_bytes, took_ns);
  rail.busy_since_ns = rail.progress_ns;
  rail.busy_bytes = 0;
  rail.began_idle = false;
}

void Rails::on_measured(std::size_t rail, std::uint64_t bytes, std::uint64_t took_ns) {
  Rail& at = rails_[rail];
  // Small parts measure the round trip, not the bandwidth.
  if (bytes < kMinSliceBytes) return;
  const double measured =
      static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(took_ns, 1));
  at.bytes_per_ns = std::clamp(at.bytes_per_ns + kWeightOfNew * (measured - at.bytes_per_ns),
                               kMinBytesPerNs, kMaxBytesPerNs);
  find_fastest();
}

// After a window of bytes has arrived, twice as many slices may be under way.
void Rails::climb(Rail& rail, std::uint32_t done_count) {
  rail.pause_ns = 0;
  rail.ramp_done += done_count;
  if (rail.ramp_done < rail.ramp_slices) return;
  rail.ramp_done = 0;
  rail.ramp_slices *= 2;
  if (rail.ramp_slices > 2 * window_slices_) rail.ramp_slices = 0;
  rail.window = window_of(rail);
}

// ---- Up and down ------------------------------------------------------------------------------

void Rails::on_failed(std::size_t rail, std::uint64_t now_ns) {
  Rail& at = rails_[rail];
  if (at.up) {
    --up_count_;
    ++at.failures;
    at.taken_back_slices += at.outstanding_slices;
  }
  if (credits_ != nullptr) credits_->give_back(at.traits.local_nic, at.outstanding);
  at.up = false;
  at.outstanding = 0;
  at.outstanding_of = {};
  outstanding_slices_ -= at.outstanding_slices;
  at.outstanding_slices = 0;
  at.pause_ns = std::clamp(at.pause_ns * 2, kRedialMinNs, kRedialMaxNs);
  at.probe_at_ns = now_ns + at.pause_ns;
  find_fastest();
}

void Rails::on_up(std::size_t rail) {
  Rail& at = rails_[rail];
  if (at.up) return;
  ++up_count_;
  at.up = true;
  // A rail that failed before begins with a single slice.
  at.ramp_slices = at.pause_ns > 0 ? 1 : 0;
  at.ramp_done = 0;
  find_fastest();
}

std::optional<std::size_t> Rails::stalled(std::uint64_t now_ns) const {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const Rail& rail = rails_[i];
    if (!rail.up || rail.outstanding == 0 || rail.progress_ns == 0) continue;
    const double slice_ns =
        static_cast<double>(rail.latency_ns) +
        static_cast<double>(std::min<std::uint64_t>(rail.outstanding, kMaxSliceBytes)) /
            rail.bytes_per_ns;
    const auto patience_ns =
        std::max(kRailStallNs, static_cast<std::uint64_t>(kStallSlices * slice_ns));
    if (now_ns >= rail.progress_ns + patience_ns) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> Rails::probe(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = rails_[i];
    if (rail.up || rail.probe_at_ns > now_ns) continue;
    // No other try until this try has been answered, or should have been.
    rail.probe_at_ns = now_ns + 2 * kHandshakeTimeoutNs;
    return i;
  }
  return std::nullopt;
}

std::uint64_t Rails::next_probe_ns() const {
  std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
  for (const Rail& rail : rails_) {
    if (!rail.up) next = std::min(next, rail.probe_at_ns);
  }
  return next;
}

RailStatus Rails::status(std::size_t rail) const {
  const Rail& at = rails_[rail];
  RailStatus status;
  const bool slow = paths_ == Paths::kSeparate && at.bytes_per_ns < kSlowShare * fastest();
  status.health = !at.up               ? RailHealth::kDown
                  : at.ramp_slices > 0 ? RailHealth::kRecovering
                  : slow               ? RailHealth::kSlow
                                       : RailHealth::kUp;
  status.bytes_per_ns = at.bytes_per_ns;
  status.latency_ns = at.latency_ns;
  status.outstanding_bytes = at.outstanding;
  status.window_bytes = at.window;
  status.done_bytes = at.done_bytes;
  status.done_slices = at.done_slices;
  status.failures = at.failures;
  status.taken_back_slices = at.taken_back_slices;
  return status;
}

}  // namespace mc::transport
