// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/adopted_objects.h"

#include <boost/sort/spreadsort/integer_sort.hpp>

namespace mc::agent {

void AdoptedObjects::add(std::uint32_t entry, std::uint64_t sequence) {
  if (entry >= waits_.size()) waits_.resize(entry + std::size_t{1});
  waits_[entry] = true;
  unsorted_.push_back({sequence, entry});
  ++count_;
}

void AdoptedObjects::sort() {
  boost::sort::spreadsort::integer_sort(
      unsorted_.begin(), unsorted_.end(),
      [](const Aged& object, unsigned bits) { return object.sequence >> bits; },
      [](const Aged& a, const Aged& b) { return a.sequence < b.sequence; });
  order_.reserve(unsorted_.size());
  for (auto at = unsorted_.rbegin(); at != unsorted_.rend(); ++at) order_.push_back(at->entry);
  unsorted_ = {};
}

bool AdoptedObjects::take(std::uint32_t entry) {
  if (!contains(entry)) return false;
  waits_[entry] = false;
  --count_;
  return true;
}

std::uint32_t AdoptedObjects::oldest() {
  // An entry that left may hold a new object, which has no bit here.
  while (!order_.empty() && !waits_[order_.back()]) order_.pop_back();
  if (!order_.empty()) return order_.back();
  order_ = {};
  waits_ = {};
  return kNoEntry;
}

}  // namespace mc::agent
