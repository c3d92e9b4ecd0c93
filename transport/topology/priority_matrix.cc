// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/priority_matrix.h"

#include <json/reader.h>
#include <json/writer.h>

#include <algorithm>
#include <memory>

namespace mc::transport {

namespace {

constexpr std::size_t kMaxNameBytes = 256;

// Accepts visible ASCII, which all device names consist of, and which is safe to print.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// Ranks NICs by cost; the NICs with the least cost are near.
NicRanking rank(std::vector<std::pair<std::uint64_t, const Nic*>> costs) {
  std::ranges::stable_sort(costs, {}, [](const auto& cost) { return cost.first; });
  NicRanking ranking;
  for (const auto& [cost, nic] : costs) {
    (cost == costs.front().first ? ranking.near : ranking.far).push_back(nic->name);
  }
  return ranking;
}

std::uint64_t node_distance(const Topology& topology, int from, int to) {
  constexpr std::uint64_t kUnknown = 255;
  const NumaNode* node = topology.node(from);
  for (std::size_t i = 0; node != nullptr && i < topology.nodes.size(); ++i) {
    if (static_cast<int>(topology.nodes[i].id) != to) continue;
    if (i < node->distances.size()) return node->distances[i];
    return from == to ? 10 : 20;
  }
  return kUnknown;
}

Status unknown(const std::string& why) {
  return {MC_INVALID_ARGUMENT,
          why + "; a matrix reads {\"cpu:0\": [[\"near NIC\", …], [\"far NIC\", …]], …}"};
}

Result<std::vector<std::string>> names_in(const Json::Value& list, const std::string& place) {
  if (!list.isArray() || list.size() > kMaxPciDevices) {
    return fail(unknown("the NICs of \"" + place + "\" are not a list"));
  }
  std::vector<std::string> names;
  for (const Json::Value& name : list) {
    if (!name.isString() || !is_name(name.asString())) {
      return fail(unknown("a NIC of \"" + place + "\" is not a name"));
    }
    names.push_back(name.asString());
  }
  return names;
}

Result<Json::Value> parsed(std::string_view json) {
  if (json.size() > kMaxMatrixBytes) return fail(unknown("the matrix is longer than 1 MiB"));
  Json::CharReaderBuilder builder;
  builder["stackLimit"] = 16;
  builder["rejectDupKeys"] = true;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  try {
    if (reader->parse(json.data(), json.data() + json.size(), &value, &errors)) return value;
  } catch (const Json::Exception& error) {  // jsoncpp's answer to nesting beyond stackLimit
    errors = error.what();
  }
  std::ranges::replace(errors, '\n', ' ');
  return fail(unknown("the matrix is not JSON: " + errors));
}

}  // namespace

const NicRanking* PriorityMatrix::find(const std::string& place) const {
  const auto at = places.find(place);
  return at == places.end() ? nullptr : &at->second;
}

std::uint64_t PriorityMatrix::near_bits(const std::string& place,
                                        std::span<const std::string> nics) const {
  const NicRanking* ranking = find(place);
  if (ranking == nullptr) return ~std::uint64_t{0};
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < nics.size() && i < 64; ++i) {
    if (std::ranges::find(ranking->near, nics[i]) != ranking->near.end()) bits |= 1ull << i;
  }
  return bits;
}

PriorityMatrix make_priority_matrix(const Topology& topology) {
  PriorityMatrix matrix;
  using Costs = std::vector<std::pair<std::uint64_t, const Nic*>>;
  for (const NumaNode& node : topology.nodes) {
    Costs costs;
    for (const Nic& nic : topology.nics) {
      const auto id = static_cast<int>(node.id);
      if (nic.used()) costs.emplace_back(node_distance(topology, id, nic.pci.node), &nic);
    }
    matrix.places["cpu:" + std::to_string(node.id)] = rank(std::move(costs));
  }
  for (const Gpu& gpu : topology.gpus) {
    Costs costs;
    for (const Nic& nic : topology.nics) {
      if (!nic.used()) continue;
      const auto apart = static_cast<std::uint64_t>(distance(gpu.pci, nic.pci));
      // Across sockets, node distances differ too.
      costs.emplace_back(apart << 16 | node_distance(topology, gpu.pci.node, nic.pci.node), &nic);
    }
    matrix.places[gpu.name] = rank(std::move(costs));
  }
  return matrix;
}

Result<PriorityMatrix> parse_priority_matrix(std::string_view json) {
  auto value = parsed(json);
  if (value && value->isObject() && value->isMember("nic_priority_matrix")) {
    const Json::Value inner = (*value)["nic_priority_matrix"];
    value = inner.isString() ? parsed(inner.asString()) : Result<Json::Value>(inner);
  }
  if (!value) return fail(value.error());
  if (!value->isObject()) return fail(unknown("the matrix is not an object"));
  PriorityMatrix matrix;
  for (const std::string& place : value->getMemberNames()) {
    const Json::Value& lists = (*value)[place];
    if (!is_name(place)) return fail(unknown("a place has no name of visible ASCII"));
    if (!lists.isArray() || lists.empty() || lists.size() > 2) {
      return fail(unknown("\"" + place + "\" has not one or two lists of NICs"));
    }
    auto near = names_in(lists[0], place);
    if (!near) return fail(near.error());
    auto far = names_in(lists.size() > 1 ? lists[1] : Json::Value(Json::arrayValue), place);
    if (!far) return fail(far.error());
    matrix.places[place] = {std::move(*near), std::move(*far)};
  }
  return matrix;
}

Status override_places(PriorityMatrix& matrix, const PriorityMatrix& file,
                       const Topology& topology) {
  for (const auto& [place, ranking] : file.places) {
    for (const auto* names : {&ranking.near, &ranking.far}) {
      for (const std::string& name : *names) {
        const Nic* nic = topology.nic(name);
        if (nic == nullptr) {
          return {MC_INVALID_ARGUMENT, "\"" + place + "\" names " + name +
                                           ", which this host does not have; mcctl topo lists "
                                           "its NICs"};
        }
        if (!nic->used()) {
          return {MC_INVALID_ARGUMENT, "\"" + place + "\" names " + name + ", which is not used: " +
                                           nic->left_out + "; take it out of the matrix"};
        }
      }
    }
  }
  for (const auto& [place, ranking] : file.places) matrix.places[place] = ranking;
  return {};
}

std::string matrix_text(const PriorityMatrix& matrix) {
  Json::Value value(Json::objectValue);
  for (const auto& [place, ranking] : matrix.places) {
    Json::Value lists(Json::arrayValue);
    for (const auto* names : {&ranking.near, &ranking.far}) {
      Json::Value list(Json::arrayValue);
      for (const std::string& name : *names) list.append(name);
      lists.append(list);
    }
    value[place] = lists;
  }
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

}  // namespace mc::transport
