// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/lru.h"

namespace mc::agent {
namespace {

PinLevel pin_of(const Family::Slot& slot) { return static_cast<PinLevel>(slot.mark); }

}  // namespace

void LruPolicy::insert(const Arrival& arrival) {
  family_.insert(arrival.id, arrival.parent);
  if (links_.size() <= arrival.id) links_.resize(std::size_t{arrival.id} + 1);
  family_[arrival.id].mark = static_cast<std::uint8_t>(arrival.pin) & 3U;
  enter_newest(arrival.id);
}

void LruPolicy::touch(EntryId id) {
  if (!family_.contains(id)) return;
  leave(id);
  enter_newest(id);
}

void LruPolicy::erase(EntryId id) {
  if (family_.contains(id)) forget(id);
}

void LruPolicy::set_pin(EntryId id, PinLevel level) {
  if (!family_.contains(id)) return;
  leave(id);
  family_[id].mark = static_cast<std::uint8_t>(level) & 3U;
  enter_newest(id);
}

EntryId LruPolicy::evict() {
  EntryId victim = oldest_childless(unpinned_);
  if (victim == kNoEntry) victim = oldest_childless(soft_pinned_);
  if (victim != kNoEntry) forget(victim);
  return victim;
}

std::size_t LruPolicy::memory_bytes() const {
  return family_.memory_bytes() + links_.capacity() * sizeof(Neighbours);
}

Queue& LruPolicy::order_of(EntryId id) {
  return pin_of(family_[id]) == PinLevel::kSoft ? soft_pinned_ : unpinned_;
}

void LruPolicy::enter_newest(EntryId id) {
  if (pin_of(family_[id]) == PinLevel::kHard) return;
  order_of(id).push_newest(links(), id);
  family_[id].is_queued = 1;
}

void LruPolicy::leave(EntryId id) {
  if (!family_[id].is_queued) return;
  order_of(id).remove(links(), id);
  family_[id].is_queued = 0;
}

void LruPolicy::forget(EntryId id) {
  leave(id);
  const EntryId parent = family_.erase(id);
  if (parent == kNoEntry) return;
  // A parent outside the order was the oldest when the policy met it, and is still older than
  // all others.
  Family::Slot& above = family_[parent];
  if (above.is_queued || pin_of(above) == PinLevel::kHard) return;
  order_of(parent).push_oldest(links(), parent);
  above.is_queued = 1;
}

// A parent met on the way leaves the order until its last child has gone, so the walk meets no
// parent twice.
EntryId LruPolicy::oldest_childless(Queue& order) {
  while (!order.empty()) {
    const EntryId id = order.oldest;
    if (!family_[id].is_parent) return id;
    leave(id);
  }
  return kNoEntry;
}

}  // namespace mc::agent
