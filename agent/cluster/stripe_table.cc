// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe_table.h"

#include <algorithm>

namespace mc::agent {

using metadata::KeyHash;

StripeSet* StripeTable::find(std::uint64_t put) {
  const auto at = sets_.find(put);
  return at == sets_.end() ? nullptr : &at->second;
}

StripeSet& StripeTable::add(const StripeFacts& facts, const KeyHash& name, std::string key) {
  const auto [at, is_new] = sets_.try_emplace(facts.put);
  if (is_new) {
    at->second.facts = facts;
    at->second.name = name;
    at->second.key = std::move(key);
    by_name_.emplace(name, facts.put);
  }
  return at->second;
}

StripeSet* StripeTable::sealed(const KeyHash& name) {
  StripeSet* latest = nullptr;
  const auto [first, last] = by_name_.equal_range(name);
  for (auto at = first; at != last; ++at) {
    StripeSet& set = sets_.at(at->second);
    if (set.sealed && !set.broken && (latest == nullptr || set.version > latest->version)) {
      latest = &set;
    }
  }
  return latest;
}

std::vector<std::uint64_t> StripeTable::puts_of(const KeyHash& name) const {
  std::vector<std::uint64_t> puts;
  const auto [first, last] = by_name_.equal_range(name);
  for (auto at = first; at != last; ++at) puts.push_back(at->second);
  std::ranges::sort(puts);
  return puts;
}

StripeSet StripeTable::take(std::uint64_t put) {
  StripeSet set = std::move(sets_.extract(put).mapped());
  const auto [first, last] = by_name_.equal_range(set.name);
  by_name_.erase(std::find_if(first, last, [&](const auto& one) { return one.second == put; }));
  return set;
}

void StripeTable::came(const StripeName& stripe, std::uint32_t entry) {
  StripeSet* const set = find(stripe.put);
  if (set == nullptr) return;
  const auto at = set->stripes.find(stripe.number);
  if (at != set->stripes.end()) at->second.entry = entry;
}

void StripeTable::left(const StripeName& stripe, std::uint32_t entry) {
  StripeSet* const set = find(stripe.put);
  if (set == nullptr) return;
  const auto at = set->stripes.find(stripe.number);
  if (at == set->stripes.end() || at->second.entry != entry) return;
  at->second.entry = kNoEntry;
  if (!set->broken) flagged_.push_back(stripe.put);
  set->broken = true;
}

void StripeTable::replaced(const KeyHash& name, std::uint64_t version) {
  StripeSet* const set = sealed(name);
  if (set == nullptr || set->version >= version || set->replaced) return;
  set->replaced = true;
  flagged_.push_back(set->facts.put);
}

}  // namespace mc::agent
