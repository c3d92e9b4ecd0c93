// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/nic_choice.h"

#include <algorithm>

namespace mc::transport {

namespace {

bool names(const std::string& pattern, const Nic& nic) {
  return matches(pattern, nic.name) || matches(pattern, nic.pci.address) ||
         std::ranges::any_of(nic.netdevs,
                             [&](const std::string& netdev) { return matches(pattern, netdev); });
}

bool any_names(const std::vector<std::string>& patterns, const Nic& nic) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return names(pattern, nic); });
}

std::string refusal(const Nic& nic, const NicFilter& filter) {
  if (any_names(filter.deny, nic)) return "on the deny list";
  if (!filter.allow.empty() && !any_names(filter.allow, nic)) return "not on the allow list";
  if (nic.ports.empty()) return "has no port";
  const bool active = std::ranges::any_of(nic.ports, [](const Port& port) { return port.active; });
  if (!active) return nic.ports.size() == 1 ? "its port is down" : "its ports are down";
  return "";
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, in = 0, star = std::string_view::npos, kept = 0;
  while (in < name.size()) {
    if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at, ++in;
    } else if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      kept = in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++kept;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

void choose_nics(Topology& topology, const NicFilter& filter) {
  for (Nic& nic : topology.nics) nic.left_out = refusal(nic, filter);
  const auto used_rdma = [](const Nic& nic) { return nic.used() && nic.rdma; };
  const bool rdma = std::ranges::any_of(topology.nics, used_rdma);
  for (Nic& nic : topology.nics) {
    if (!nic.used()) continue;
    if (rdma && !nic.rdma) nic.left_out = "without RDMA; for TCP only";
    if (nic.parent.empty()) continue;
    // Both functions share a cable.
    const auto parent = std::ranges::find_if(topology.nics, [&](const Nic& other) {
      return other.pci.address == nic.parent && other.used() && other.rdma == nic.rdma;
    });
    if (parent != topology.nics.end()) {
      nic.left_out = "a virtual function of " + parent->name + ", which is used";
    }
  }
}

bool has_efa(const Topology& topology) {
  constexpr std::uint16_t kAmazon = 0x1d0f;
  return std::ranges::any_of(topology.nics,
                             [](const Nic& nic) { return nic.rdma && nic.pci.vendor == kAmazon; });
}

std::vector<std::string> unmatched(const Topology& topology, const NicFilter& filter) {
  std::vector<std::string> out;
  for (const auto* patterns : {&filter.allow, &filter.deny}) {
    for (const std::string& pattern : *patterns) {
      const bool known =
          std::ranges::any_of(topology.nics, [&](const Nic& nic) { return names(pattern, nic); });
      if (!known) out.push_back(pattern);
    }
  }
  return out;
}

}  // namespace mc::transport
