// SPDX-License-Identifier: Apache-2.0
//
// The pairs of a local NIC and a peer's NIC that talk to each other.
//
//     ours    0   1   2   3          On rail-optimised fabrics NIC i of every host hangs on
//             │   │   │   │          the same leaf switch: i with i stays on one switch and
//     theirs  0   1   2   3          needs n connections instead of n².
//
//   NICs of the same name are partners. The other NICs are paired in order; the shorter side starts
//   again from the beginning.
// Threads: any; pure.
// Trusts: nothing in names; the names of the peer are only compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mc::transport {

struct RailPair {
  std::uint32_t local = 0;
  std::uint32_t remote = 0;
  friend bool operator==(const RailPair&, const RailPair&) = default;
};

// Every NIC of both sides is in a pair. Empty if either side has no NIC.
std::vector<RailPair> pair_rails(std::span<const std::string> local,
                                 std::span<const std::string> remote);

}  // namespace mc::transport
