// SPDX-License-Identifier: Apache-2.0
//
// The limit of bytes that all peers together may be asked to send to a local NIC. The
//   Rails of a peer know only the window of that peer; sixteen peers with a window each would
//   overrun the last switch port before this host (incast). Since bytes are pulled, the receiver
//   prevents incast by not asking:
//
//     peer 1 ─┐                 asked for and not yet here, over all peers
//     peer 2 ─┼─► NIC 0   ███████████░░░░   budget: the bytes by which one peer fills the line
//     peer … ─┘
//
//   A peer without credit waits; the owner gives freed credit to the peer that waited longest.
// Threads: a value of the owner. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace mc::transport {

class Credits {
 public:
  // budget_bytes: of each NIC, until set_budget().
  explicit Credits(std::size_t nics, std::uint64_t budget_bytes = kUnlimited)
      : nics_(nics, {budget_bytes, 0}) {}

  std::size_t count() const { return nics_.size(); }
  void set_budget(std::size_t nic, std::uint64_t bytes) { nics_[nic].budget = bytes; }
  std::uint64_t budget(std::size_t nic) const { return nics_[nic].budget; }
  std::uint64_t outstanding_bytes(std::size_t nic) const { return nics_[nic].outstanding; }

  // An idle NIC takes a slice of any size.
  bool has(std::size_t nic, std::uint64_t bytes) const {
    const Nic& at = nics_[nic];
    return at.outstanding == 0 ||
           (at.outstanding < at.budget && bytes <= at.budget - at.outstanding);
  }
  void take(std::size_t nic, std::uint64_t bytes) { nics_[nic].outstanding += bytes; }
  void give_back(std::size_t nic, std::uint64_t bytes) {
    nics_[nic].outstanding -= std::min(nics_[nic].outstanding, bytes);
  }

 private:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  struct Nic {
    std::uint64_t budget;
    std::uint64_t outstanding;
  };
  std::vector<Nic> nics_;
};

}  // namespace mc::transport
