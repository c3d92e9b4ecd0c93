// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/partition_spread.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace mc::metadata {

namespace {

struct Part {
  std::size_t led = 0;   // before
  std::size_t most = 0;  // from now on
  std::size_t has = 0;
};

// If the division leaves a remainder, the masters that lead most partitions get one more.
void divide(std::size_t partitions, std::map<std::string, Part>& parts) {
  std::vector<Part*> order;
  for (auto& [name, part] : parts) order.push_back(&part);
  std::ranges::stable_sort(order, std::ranges::greater(), &Part::led);
  const std::size_t left_over = partitions % order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->most = partitions / order.size() + (i < left_over ? 1 : 0);
  }
}

}  // namespace

std::vector<std::string> spread_partitions(std::span<const std::string> masters,
                                           std::span<const std::string> leaders) {
  std::vector<std::string> master_of(leaders.begin(), leaders.end());
  std::map<std::string, Part> parts;
  for (const std::string& master : masters) parts[master] = {};
  if (parts.empty()) return master_of;
  std::size_t to_divide = 0;
  for (const std::string& leader : leaders) {
    const auto part = parts.find(leader);
    if (part != parts.end()) ++part->second.led;
    to_divide += part != parts.end() || leader.empty() ? 1 : 0;
  }
  divide(to_divide, parts);
  for (std::string& master : master_of) {
    const auto part = parts.find(master);
    if (part == parts.end()) continue;
    if (part->second.has < part->second.most) {
      ++part->second.has;
    } else {
      master.clear();
    }
  }
  for (std::string& master : master_of) {
    if (!master.empty()) continue;
    const auto least = std::ranges::min_element(parts, {}, [](const auto& part) {
      return static_cast<std::ptrdiff_t>(part.second.has) -
             static_cast<std::ptrdiff_t>(part.second.most);
    });
    master = least->first;
    ++least->second.has;
  }
  return master_of;
}

}  // namespace mc::metadata
