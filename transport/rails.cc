// SPDX-License-Identifier: Apache-2.0
#include "transport/rails.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "transport/limits.h"

namespace mc::transport {

namespace {

constexpr double kSliceNs = 330'000;
constexpr double kWeightOfNew = 0.2;
// A measurement beyond these is of a cache or of a hiccup, not of the path.
constexpr double kMinBytesPerNs = 1e-6;
constexpr double kMaxBytesPerNs = 100;
constexpr std::uint64_t kSpreadBytes = 256 * 1024;

std::uint32_t slice_for(double bytes_per_ns) {
  const double bytes =
      std::clamp(bytes_per_ns * kSliceNs, double{kMinSliceBytes}, double{kMaxSliceBytes});
  return std::bit_floor(static_cast<std::uint32_t>(bytes));
}

}  // namespace

Rails::Rails(std::size_t count, std::uint32_t window_slices)
    : rails_(count), window_slices_(window_slices) {}

std::uint64_t Rails::window_bytes(const Rail& rail) const {
  return std::uint64_t{window_slices_} * slice_for(rail.bytes_per_ns);
}

std::optional<std::size_t> Rails::choose(std::uint64_t bytes) const {
  std::optional<std::size_t> best;
  double best_cost = 0;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    const Rail& rail = rails_[i];
    if (!rail.up) continue;
    if (rail.outstanding > 0 && rail.outstanding + bytes > window_bytes(rail)) continue;
    const double cost = static_cast<double>(rail.outstanding + bytes) / rail.bytes_per_ns;
    if (!best || cost < best_cost) {
      best = i;
      best_cost = cost;
    }
  }
  return best;
}

void Rails::on_sent(std::size_t rail, std::uint64_t bytes) { rails_[rail].outstanding += bytes; }

void Rails::on_done(std::size_t rail, std::uint64_t bytes) {
  Rail& at = rails_[rail];
  at.outstanding -= std::min(at.outstanding, bytes);
}

void Rails::on_measured(std::size_t rail, std::uint64_t bytes, std::uint64_t took_ns) {
  Rail& at = rails_[rail];
  // Small parts measure the round trip, not the bandwidth.
  if (bytes < kMinSliceBytes) return;
  const double measured =
      static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(took_ns, 1));
  at.bytes_per_ns = std::clamp(at.bytes_per_ns + kWeightOfNew * (measured - at.bytes_per_ns),
                               kMinBytesPerNs, kMaxBytesPerNs);
}

void Rails::on_failed(std::size_t rail, std::uint64_t now_ns) {
  Rail& at = rails_[rail];
  if (at.up) --up_count_;
  at.up = false;
  at.outstanding = 0;
  at.pause_ns = std::clamp(at.pause_ns * 2, kRedialMinNs, kRedialMaxNs);
  at.probe_at_ns = now_ns + at.pause_ns;
}

void Rails::on_up(std::size_t rail) {
  Rail& at = rails_[rail];
  if (!at.up) ++up_count_;
  at.up = true;
  at.pause_ns = 0;
}

std::optional<std::size_t> Rails::probe(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = rails_[i];
    if (rail.up || rail.probe_at_ns > now_ns) continue;
    // Until the try has been answered, or should have been, there is no other.
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

std::uint32_t Rails::slice_bytes(std::uint64_t transfer_bytes) const {
  double fastest = kMinBytesPerNs;
  for (const Rail& rail : rails_) {
    if (rail.up) fastest = std::max(fastest, rail.bytes_per_ns);
  }
  const std::uint64_t whole = slice_for(fastest);
  const std::uint64_t share = (transfer_bytes + up_count_) / std::max<std::uint64_t>(up_count_, 1);
  return static_cast<std::uint32_t>(
      std::min(whole, std::max(std::min(kSpreadBytes, whole), std::bit_ceil(share))));
}

}  // namespace mc::transport
