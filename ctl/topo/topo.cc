// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/topo/hwloc_reader.h"
#include "ctl/topo/topo_view.h"
#include "transport/topology/device_tree.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::ctl {
namespace {

struct TopoOptions {
  std::string from;
  std::string svg;
  std::string record;
  std::string matrix;
  transport::NicFilter filter;
};

// The bytes of the file; nullopt after a reported failure.
std::optional<std::string> read_file(Context& context, const std::string& path,
                                     std::size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(max_bytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    report(context, "topo", kExitFailed,
           {fmt::format("{} cannot be read: {}", path, std::strerror(errno)),
            "check the name and its permissions"});
    return std::nullopt;
  }
  if (text.size() > max_bytes) {
    report(context, "topo", kExitFailed,
           {fmt::format("{} is longer than {} bytes", path, max_bytes), "name the right file"});
    return std::nullopt;
  }
  return text;
}

bool write_file(Context& context, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (file) return true;
  report(context, "topo", kExitFailed,
         {fmt::format("{} cannot be written: {}", path, std::strerror(errno)),
          "check the directory, its permissions and the space left"});
  return false;
}

void report_in(Context& context, const std::string& file, const Status& status) {
  Failure failure = explain(status.code(), status.text());
  failure.cause = file + ": " + failure.cause;
  report(context, "topo", kExitFailed, failure);
}

std::optional<transport::Topology> read_tree(Context& context, const TopoOptions& options,
                                             const transport::DeviceTree& tree) {
  const transport::Recorder recorder(tree);
  transport::Topology topology = transport::read_topology(recorder);
  if (!options.record.empty() && !write_file(context, options.record, recorder.text())) {
    return std::nullopt;
  }
  return topology;
}

bool is_directory(const std::string& path) {
  return !transport::DirectoryTree(path).list("").empty();
}

std::optional<transport::Topology> load(Context& context, const TopoOptions& options) {
  if (options.from.empty()) return read_tree(context, options, transport::DirectoryTree());
  if (is_directory(options.from)) {
    return read_tree(context, options, transport::DirectoryTree(options.from));
  }
  const auto text = read_file(context, options.from, kMaxHwlocBytes);
  if (!text) return std::nullopt;
  if (!transport::RecordedTree::is_one(*text)) {
    // Otherwise hwloc would also print its own errors to standard error.
    ::setenv("HWLOC_HIDE_ERRORS", "2", 0);
    auto topology = read_hwloc_xml(*text);
    if (topology) return std::move(*topology);
    report_in(context, options.from, topology.error());
    return std::nullopt;
  }
  const auto tree = transport::RecordedTree::parse(*text);
  if (tree) return read_tree(context, options, *tree);
  report_in(context, options.from, tree.error());
  return std::nullopt;
}

bool apply_matrix(Context& context, const std::string& file, TopoView& view) {
  const auto text = read_file(context, file, transport::kMaxMatrixBytes);
  if (!text) return false;
  const auto matrix = transport::parse_priority_matrix(*text);
  const Status status =
      matrix ? override_places(view.matrix, *matrix, view.topology) : matrix.error();
  if (!status.ok()) report_in(context, file, status);
  return status.ok();
}

void run_topo(Context& context, const TopoOptions& options) {
  auto topology = load(context, options);
  if (!topology) return;
  choose_nics(*topology, options.filter);
  TopoView view;
  view.source = options.from.empty() ? "this host" : options.from;
  view.topology = std::move(*topology);
  view.matrix = make_priority_matrix(view.topology);
  for (const std::string& pattern : unmatched(view.topology, options.filter)) {
    fmt::print(stderr, "mcctl: topo: no NIC is called {}\n", pattern);
  }
  if (!options.matrix.empty() && !apply_matrix(context, options.matrix, view)) return;
  if (!options.svg.empty() && !write_file(context, options.svg, topo_svg(view))) return;
  if (context.json) {
    print_json(topo_json(view));
  } else {
    fmt::print("{}", topo_text(view));
  }
}

}  // namespace

Verb topo_verb(Context& context) {
  auto options = std::make_shared<TopoOptions>();
  return {
      .name = "topo",
      .text = R"(Show NICs, GPUs and NUMA nodes, and which are near to each other

Reads /sys; needs no agent and changes nothing. For each NUMA node, mcctl shows the devices on
its PCIe root complexes. The rate of a NIC is the lower one of its active ports and its PCIe
link. Then mcctl shows the distance of every NIC to each GPU, and the near and the far NICs of
each place of memory. A place of memory is the memory of a NUMA node (cpu:N) or of a GPU (cuda:N
or hip:N, numbered by PCI address). Transfers use the near NICs first.

A NIC is not used if --not-nics names it, if --nics does not name it, if its ports are down, if
it is a virtual function beside its physical function, or if it has no RDMA and other NICs have.

--from shows another machine. It takes a record that --record wrote there, the output of "lstopo
--of xml" (without the speed of ports, which hwloc does not know), or a directory with a copy of
the machine's /sys.)",
      .footer = R"(EXAMPLES
  mcctl topo
  mcctl topo --svg host.svg
  mcctl topo --nics 'mlx5_*' --not-nics mlx5_bond_0
  mcctl topo --matrix priority.json   '{"cpu:0": [["mlx5_0"], ["mlx5_1"]]}', Mooncake's form
  mcctl topo --record host.tree       for --from host.tree on another machine
  mcctl topo --json | jq '.nic_priority_matrix'

EXIT STATUS
  0 shown, also if there is no NIC; 1 a file cannot be read or written; 2 wrong usage)",
      .options = {{"--from", &options->from,
                   "Another machine: its record, its hwloc XML, or a directory with its /sys",
                   "FILE"},
                  {"--nics", &options->filter.allow,
                   "Use only these NICs: names, network devices or PCI addresses, with * and ?",
                   "PATTERN,..."},
                  {"--not-nics", &options->filter.deny, "Do not use these NICs; overrides --nics",
                   "PATTERN,..."},
                  {"--matrix", &options->matrix,
                   "Places of memory with their near and far NICs, instead of those found; "
                   "JSON in the form of Mooncake's nic_priority_matrix",
                   "FILE"},
                  {"--svg", &options->svg, "Also write a drawing to this file", "FILE"},
                  {"--record", &options->record,
                   "Write all that was read to this file, for --from on another machine", "FILE"}},
      .run = [options, &context] { run_topo(context, *options); },
  };
}

}  // namespace mc::ctl
