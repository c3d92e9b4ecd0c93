// SPDX-License-Identifier: Apache-2.0
//
// Which evicted objects the tier takes, so that the disks live as long as planned. The plan is a number of
//   bytes a day. The disks save what they do not write, for an hour at most. A start has half an hour saved.
//     at least half an hour saved   all objects
//     less                          objects that a reader has used
//     nothing                       none
// Threads: the agent's loop.
// Owns: the account of the written bytes.
// Trusts: its caller.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mc::agent {

class Admission {
 public:
  // bytes_per_day: 0: no limit.
  // written_bytes: to all disks, ever, with all copies.
  Admission(std::uint64_t bytes_per_day, std::uint64_t written_bytes, std::uint64_t now_ns)
      : hour_bytes_(static_cast<double>(bytes_per_day) / 24),
        saved_(hour_bytes_ / 2),
        written_bytes_(written_bytes),
        at_ns_(now_ns) {}

  // now_ns: never lower than before.
  bool admits(bool used, std::uint64_t written_bytes, std::uint64_t now_ns) {
    if (hour_bytes_ == 0) return true;
    const double hours = static_cast<double>(now_ns - at_ns_) / kHourNs;
    const std::uint64_t written = written_bytes - written_bytes_;
    const std::uint64_t charged = std::min(written, ahead_bytes_);
    ahead_bytes_ -= charged;
    saved_ = std::min(hour_bytes_, saved_ + hours * hour_bytes_) -
             static_cast<double>(written - charged);
    at_ns_ = now_ns;
    written_bytes_ = written_bytes;
    return saved_ >= (used ? 0 : hour_bytes_ / 2);
  }
  // An object was admitted, and will be written.
  void charge(std::uint64_t bytes) {
    ahead_bytes_ += bytes;
    saved_ -= static_cast<double>(bytes);
  }

 private:
  static constexpr double kHourNs = 3600e9;
  const double hour_bytes_;
  double saved_;
  std::uint64_t ahead_bytes_ = 0;  // charged, and not yet written
  std::uint64_t written_bytes_;
  std::uint64_t at_ns_;
};

}  // namespace mc::agent
