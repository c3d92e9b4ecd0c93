// SPDX-License-Identifier: Apache-2.0
//
// What it is: which NICs are near to which memory: what a host's topology says, or a file instead,
//   in the form of Mooncake's nic_priority_matrix:
//
//     {"cpu:0": [["mlx5_0", "mlx5_1"], ["mlx5_2", "mlx5_3"]],      place: [near ones, the others]
//      "cuda:0": [["mlx5_0"], ["mlx5_1", "mlx5_2", "mlx5_3"]]}
//
//   Near to a node's memory are the NICs of that node (if it has none, of the nearest that has
//   some); near to a GPU those the fewest bridges away. Both lists are in order of distance.
// Threads: any; values. Trusts: nothing in a file; names and their number are bounded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"
#include "transport/topology/topology.h"

namespace mc::transport {

inline constexpr std::size_t kMaxMatrixBytes = 1u << 20;

struct NicRanking {
  std::vector<std::string> near;
  std::vector<std::string> far;
  friend bool operator==(const NicRanking&, const NicRanking&) = default;
};

// By place of memory: "cpu:0" is that of a NUMA node, "cuda:0" that of a GPU.
struct PriorityMatrix {
  std::map<std::string, NicRanking> places;

  // For a place that is not in it: null.
  const NicRanking* find(const std::string& place) const;
  // Bits of these NICs that are near, as Rails::choose() takes them. All, for an unknown place.
  std::uint64_t near_bits(const std::string& place, std::span<const std::string> nics) const;
};

// Of the NICs that are used.
PriorityMatrix make_priority_matrix(const Topology& topology);

// The text of a file: the object above, or one that has it under "nic_priority_matrix", as an
// object or as text. Errors: MC_INVALID_ARGUMENT.
Result<PriorityMatrix> parse_priority_matrix(std::string_view json);
// Replaces the places that the file names. Errors: MC_INVALID_ARGUMENT for a NIC that this host
// does not have or does not use.
Status override_places(PriorityMatrix& matrix, const PriorityMatrix& file,
                       const Topology& topology);
// As a file that parse_priority_matrix() takes, and Mooncake.
std::string matrix_text(const PriorityMatrix& matrix);

}  // namespace mc::transport
