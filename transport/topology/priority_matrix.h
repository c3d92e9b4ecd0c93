// SPDX-License-Identifier: Apache-2.0
//
// The NICs that are near to each memory, from a host's topology, or from a file in the
//   form of Mooncake's nic_priority_matrix:
//
//     {"cpu:0": [["mlx5_0", "mlx5_1"], ["mlx5_2", "mlx5_3"]],      place: [near NICs, other NICs]
//      "cuda:0": [["mlx5_0"], ["mlx5_1", "mlx5_2", "mlx5_3"]]}
//
//   Near to a node's memory are the NICs of the node. If the node has no NIC, the NICs of the
//   nearest node with NICs are near. Near to a GPU are the NICs with the fewest bridges between.
//   Both lists are in order of distance.
// Threads: any; values.
// Trusts: nothing in a file. Names and the number of names are bounded.
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

// Rankings by place of memory: "cpu:0" is a NUMA node, "cuda:0" a GPU.
struct PriorityMatrix {
  std::map<std::string, NicRanking> places;

  // Null for a place that is not in the matrix.
  const NicRanking* find(const std::string& place) const;
  // Bits of the given NICs that are near, as Rails::choose() takes them; all bits for an unknown
  // place.
  std::uint64_t near_bits(const std::string& place, std::span<const std::string> nics) const;
};

// The matrix of the NICs that are in use.
PriorityMatrix make_priority_matrix(const Topology& topology);

// Parses a file: the object above, or an object that has the map under "nic_priority_matrix", as an
// object or as text. Errors: MC_INVALID_ARGUMENT.
Result<PriorityMatrix> parse_priority_matrix(std::string_view json);
// Replaces the places that the file names. Errors: MC_INVALID_ARGUMENT for a NIC that this host
// does not have or does not use.
Status override_places(PriorityMatrix& matrix, const PriorityMatrix& file,
                       const Topology& topology);
// The text of a file that parse_priority_matrix() and Mooncake accept.
std::string matrix_text(const PriorityMatrix& matrix);

}  // namespace mc::transport
