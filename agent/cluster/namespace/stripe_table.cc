// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/namespace/stripe_table.h"

#include <algorithm>

namespace mc::agent {

using metadata::KeyHash;

StripeSet* StripeTable::find(SetId id) {
  const auto at = sets_.find(id);
  return at == sets_.end() ? nullptr : &at->second;
}

StripeSet* StripeTable::set_of(const StripeName& stripe) {
  for (auto at = sets_.lower_bound({stripe.put, 0});
       at != sets_.end() && at->first.put == stripe.put; ++at) {
    if (at->second.stripes.contains(stripe.number)) return &at->second;
  }
  return nullptr;
}

StripeSet& StripeTable::add(SetId id, const StripeFacts& facts, const KeyHash& name,
                            std::string key) {
  const auto [at, is_new] = sets_.try_emplace(id);
  if (is_new) {
    at->second.id = id;
    at->second.facts = facts;
    at->second.name = name;
    at->second.key = std::move(key);
    by_name_.emplace(name, id);
    unsealed_.insert(id);
  }
  return at->second;
}

StripeSet::Stripe& StripeTable::stripe(StripeSet& set, std::uint16_t number) {
  const auto [at, is_new] = set.stripes.try_emplace(number);
  stripe_count_ += is_new ? 1 : 0;
  return at->second;
}

void StripeTable::seal(StripeSet& set) {
  set.sealed = true;
  unsealed_.erase(set.id);
}

StripeSet& StripeTable::split(SetId from, SetId to, std::uint64_t stripes) {
  StripeSet& whole = *find(from);
  StripeSet& part = add(to, whole.facts, whole.name, whole.key);
  part.pin = whole.pin;
  part.replicas = whole.replicas;
  part.writer = whole.writer;
  part.writer_incarnation = whole.writer_incarnation;
  part.until_ns = whole.until_ns;
  for (std::uint16_t number = 0; number < kMaxStripes; ++number) {
    if ((stripes >> number & 1) != 0) part.stripes.insert(whole.stripes.extract(number));
  }
  if (whole.stripes.empty()) take(from);
  return part;
}

std::vector<StripeSet*> StripeTable::sealed(const KeyHash& name, std::uint64_t version) {
  std::vector<StripeSet*> found;
  for (const SetId& id : sets_of(name)) {
    StripeSet& set = sets_.at(id);
    if (set.sealed && !set.broken && set.version == version) found.push_back(&set);
  }
  return found;
}

std::vector<SetId> StripeTable::sets_of(const KeyHash& name) const {
  std::vector<SetId> ids;
  const auto [first, last] = by_name_.equal_range(name);
  for (auto at = first; at != last; ++at) ids.push_back(at->second);
  std::ranges::sort(ids);
  return ids;
}

std::vector<SetId> StripeTable::sets_of(std::uint64_t put) const {
  std::vector<SetId> ids;
  for (auto at = sets_.lower_bound({put, 0}); at != sets_.end() && at->first.put == put; ++at) {
    ids.push_back(at->first);
  }
  return ids;
}

StripeSet StripeTable::take(SetId id) {
  StripeSet set = std::move(sets_.extract(id).mapped());
  unsealed_.erase(id);
  stripe_count_ -= set.stripes.size();
  const auto [first, last] = by_name_.equal_range(set.name);
  by_name_.erase(std::find_if(first, last, [&](const auto& one) { return one.second == id; }));
  return set;
}

void StripeTable::came(const StripeName& stripe, std::uint32_t entry) {
  StripeSet* const set = set_of(stripe);
  if (set != nullptr) set->stripes.at(stripe.number).entry = entry;
}

void StripeTable::left(const StripeName& stripe, std::uint32_t entry) {
  StripeSet* const set = set_of(stripe);
  if (set == nullptr) return;
  StripeSet::Stripe& gone = set->stripes.at(stripe.number);
  if (gone.entry != entry) return;
  gone.entry = kNoEntry;
  if (!set->broken) flagged_.push_back(set->id);
  set->broken = true;
}

void StripeTable::replaced(const KeyHash& name, std::uint64_t version) {
  for (const SetId& id : sets_of(name)) {
    StripeSet& set = sets_.at(id);
    if (!set.sealed || set.broken || set.version >= version || set.replaced) continue;
    set.replaced = true;
    flagged_.push_back(id);
  }
}

}  // namespace mc::agent
