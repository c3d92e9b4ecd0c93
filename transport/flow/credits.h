// SPDX-License-Identifier: Apache-2.0
//
// What it is: how much all peers together may be asked to send to one NIC of ours. Each peer's
//   Rails know only their own window; sixteen peers with a window each would overrun the last
//   switch port before us (incast). Since bytes are pulled, the receiver prevents it by not asking:
//
//     peer 1 ─┐                 asked for and not yet here, over all peers
//     peer 2 ─┼─► NIC 0   ███████████░░░░   budget: what one peer alone would need to fill the line
//     peer … ─┘
//
//   Who finds no credit waits its turn; the owner hands freed credit to whoever waits longest.
// Threads: a value of its owner. Pure. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace mc::transport {

class Credits {
 public:
  // budget_bytes: of each, until it is set.
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
