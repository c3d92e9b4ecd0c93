// SPDX-License-Identifier: Apache-2.0
//
// The first byte selects the kind: a recorded tree of another host ('t') with all derived values,
// or a priority matrix. hwloc's parser is not under test.
#include <json/json.h>

#include "bytes.h"
#include "ctl/topo/topo_view.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace {

using namespace mc::transport;  // NOLINT
using mc::fuzz::require;

void try_tree(std::string_view text) {
  const auto tree = RecordedTree::parse(text);
  if (!tree) {
    require(tree.error().code() == MC_INVALID_ARGUMENT);
    return;
  }
  const Recorder recorder(*tree);
  mc::ctl::TopoView view;
  view.source = "fuzz";
  view.topology = read_topology(recorder);
  choose_nics(view.topology, {{"mlx*"}, {"*_1"}});
  view.matrix = make_priority_matrix(view.topology);
  require(view.topology.nodes.size() <= kMaxNumaNodes);
  std::size_t used = 0;
  for (const Nic& nic : view.topology.nics) used += nic.used() ? 1 : 0;
  for (const auto& [place, ranking] : view.matrix.places) {
    require(ranking.near.size() + ranking.far.size() == used);
    require(used == 0 || !ranking.near.empty());
  }
  require(!topo_text(view).empty() && !topo_svg(view).empty());
  require(topo_json(view).isObject());
  require(RecordedTree::parse(recorder.text()).has_value());
}

void try_matrix(std::string_view text) {
  const auto matrix = parse_priority_matrix(text);
  if (!matrix) return;
  const auto again = parse_priority_matrix(matrix_text(*matrix));
  require(again && again->places == matrix->places);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 't') {
    try_tree(rest);
  } else {
    try_matrix(rest);
  }
  return 0;
}
