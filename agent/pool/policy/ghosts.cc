// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/ghosts.h"

#include <algorithm>
#include <span>

namespace mc::agent {
namespace {

std::uint32_t tag_of(std::uint64_t key_hash) {
  const auto tag = static_cast<std::uint32_t>(key_hash ^ (key_hash >> 32));
  return tag == 0 ? 1 : tag;
}

}  // namespace

void Ghosts::grow_to(std::size_t count) {
  const std::size_t wanted = (count + kWays - 1) / kWays * kWays;
  if (wanted <= table_.size()) return;
  std::vector<Ghost> old(wanted);
  old.swap(table_);
  // The tag alone names the set, and a set only spreads out, so no set overflows.
  for (const Ghost& ghost : old) {
    if (ghost.tag == 0) continue;
    const std::span<Ghost> set(set_of(ghost.tag), kWays);
    const auto free = std::find_if(set.begin(), set.end(), [](auto& g) { return g.tag == 0; });
    if (free != set.end()) *free = ghost;
  }
}

std::optional<Ghosts::Ghost> Ghosts::add(std::uint64_t key_hash, std::uint16_t stamp,
                                         std::uint16_t mark, std::uint16_t now) {
  if (table_.empty()) return std::nullopt;
  const std::uint32_t tag = tag_of(key_hash);
  const std::span<Ghost> set(set_of(tag), kWays);
  const auto age = [now](const Ghost& ghost) {
    return ghost.tag == 0 ? 0x10000 : static_cast<std::uint16_t>(now - ghost.stamp);
  };
  auto place = std::find_if(set.begin(), set.end(), [tag](auto& g) { return g.tag == tag; });
  if (place == set.end()) {
    place =
        std::max_element(set.begin(), set.end(), [&](auto& a, auto& b) { return age(a) < age(b); });
  }
  const Ghost before = *place;
  *place = Ghost{tag, stamp, mark};
  if (before.tag == 0) return std::nullopt;
  return before;
}

std::optional<Ghosts::Ghost> Ghosts::take(std::uint64_t key_hash) {
  if (table_.empty()) return std::nullopt;
  const std::uint32_t tag = tag_of(key_hash);
  const std::span<Ghost> set(set_of(tag), kWays);
  const auto found = std::find_if(set.begin(), set.end(), [tag](auto& g) { return g.tag == tag; });
  if (found == set.end()) return std::nullopt;
  const Ghost ghost = *found;
  *found = Ghost{};
  return ghost;
}

Ghosts::Ghost* Ghosts::set_of(std::uint32_t tag) {
  const std::uint64_t sets = table_.size() / kWays;
  return &table_[((std::uint64_t{tag} * sets) >> 32) * kWays];
}

}  // namespace mc::agent
