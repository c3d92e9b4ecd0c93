// SPDX-License-Identifier: Apache-2.0
#include "transport/rails/rail_pairs.h"

#include <algorithm>

namespace mc::transport {

namespace {

using Indexes = std::vector<std::uint32_t>;

// Partners by name are taken out of both lists.
std::vector<RailPair> partners(std::span<const std::string> local,
                               std::span<const std::string> remote, Indexes& ours,
                               Indexes& theirs) {
  std::vector<RailPair> pairs;
  for (std::uint32_t i = 0; i < local.size(); ++i) {
    const auto at =
        std::ranges::find_if(theirs, [&](std::uint32_t k) { return remote[k] == local[i]; });
    if (at == theirs.end()) {
      ours.push_back(i);
      continue;
    }
    pairs.push_back({i, *at});
    theirs.erase(at);
  }
  return pairs;
}

}  // namespace

std::vector<RailPair> pair_rails(std::span<const std::string> local,
                                 std::span<const std::string> remote) {
  if (local.empty() || remote.empty()) return {};
  Indexes ours, theirs;
  for (std::uint32_t k = 0; k < remote.size(); ++k) theirs.push_back(k);
  std::vector<RailPair> pairs = partners(local, remote, ours, theirs);
  // In order. NICs of the longer side share the NICs of the shorter side evenly.
  const std::size_t common = std::min(ours.size(), theirs.size());
  for (std::size_t i = 0; i < common; ++i) pairs.push_back({ours[i], theirs[i]});
  for (std::size_t i = common; i < ours.size(); ++i) {
    pairs.push_back({ours[i], static_cast<std::uint32_t>(ours[i] % remote.size())});
  }
  for (std::size_t i = common; i < theirs.size(); ++i) {
    pairs.push_back({static_cast<std::uint32_t>(theirs[i] % local.size()), theirs[i]});
  }
  std::ranges::stable_sort(pairs, {}, &RailPair::local);
  return pairs;
}

}  // namespace mc::transport
