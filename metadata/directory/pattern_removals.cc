// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/pattern_removals.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace mc::metadata {

namespace {

Pattern covering(const Pattern& one, const Pattern& other) {
  if (one == other) return one;
  Pattern both{one.name_space, {}, false};
  if (one.regex || other.regex) return both;
  const auto differ = std::ranges::mismatch(one.text, other.text);
  both.text.assign(one.text.begin(), differ.in1);
  return both;
}

}  // namespace

bool PatternRemovals::takes(const Pattern& pattern) const {
  return removals_.size() < max_count_ || std::ranges::any_of(removals_, [&](const Removal& known) {
           return known.pattern.name_space == pattern.name_space;
         });
}

std::uint64_t PatternRemovals::add(Pattern pattern) {
  // The same removal again: a node that carries out the later removal has carried out both.
  std::erase_if(removals_, [&](const Removal& known) { return known.pattern == pattern; });
  removals_.push_back({next_id_++, std::move(pattern), {}});
  if (removals_.size() > max_count_) merge_oldest();
  return removals_.back().id;
}

void PatternRemovals::restore(Past past) {
  next_id_ = past.next_id;
  std::ranges::move(past.removals, std::back_inserter(removals_));
}

std::uint64_t PatternRemovals::owed_from(NodeId node) const {
  std::uint64_t first = next_id_;
  for (const Removal* const removal : unheard(node)) first = std::min(first, removal->id);
  return first;
}

void PatternRemovals::merge_oldest() {
  std::map<std::string_view, std::size_t> first_of;
  for (std::size_t i = 0; i < removals_.size(); ++i) {
    const auto [first, fresh] = first_of.try_emplace(removals_[i].pattern.name_space, i);
    if (fresh) continue;
    Removal& older = removals_[first->second];
    Removal& newer = removals_[i];
    std::vector<NodeId> both;
    std::ranges::set_intersection(older.heard, newer.heard, std::back_inserter(both));
    // The merged removal is wider than both. No node has carried it out, but a node with both lacks
    // nothing.
    newer.pattern = covering(older.pattern, newer.pattern);
    newer.heard = std::move(both);
    // A new id, because a confirmation of the newer removal alone does not confirm the merged
    // removal.
    newer.id = next_id_++;
    removals_.erase(removals_.begin() + static_cast<std::ptrdiff_t>(first->second));
    return;
  }
}

void PatternRemovals::confirm(std::uint64_t id, NodeId node) {
  for (Removal& removal : removals_) {
    if (removal.id != id) continue;
    const auto at = std::ranges::lower_bound(removal.heard, node);
    if (at == removal.heard.end() || *at != node) removal.heard.insert(at, node);
  }
}

std::vector<const PatternRemovals::Removal*> PatternRemovals::unheard(NodeId node) const {
  std::vector<const Removal*> missing;
  for (const Removal& removal : removals_) {
    if (!std::ranges::binary_search(removal.heard, node)) missing.push_back(&removal);
  }
  return missing;
}

}  // namespace mc::metadata
