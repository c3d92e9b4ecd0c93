// SPDX-License-Identifier: Apache-2.0
//
// Least recently used; a parent counts as used whenever a descendant is used.
// Threads: only the owner of the pool.
// Owns: a recency order for unpinned objects and another for soft-pinned objects.
// Trusts: its caller; ids from readers are checked against the resident objects.
#pragma once

#include "agent/pool/policy/family.h"

namespace mc::agent {

class LruPolicy final : public EvictionPolicy {
 public:
  void insert(const Arrival& arrival) override;
  void touch(EntryId id) override;
  void erase(EntryId id) override;
  void set_pin(EntryId id, PinLevel level) override;
  EntryId evict() override;

  std::string_view name() const override { return "lru"; }
  std::size_t resident_count() const override { return family_.resident_count(); }
  std::size_t memory_bytes() const override;

 private:
  struct Neighbours {
    EntryId older = kNoEntry;
    EntryId newer = kNoEntry;
  };

  // Parents are in the order too, so they have separate links here; Family's links count
  // the children.
  auto links() {
    return [this](EntryId id) -> Neighbours& { return links_[id]; };
  }
  Queue& order_of(EntryId id);
  void enter_newest(EntryId id);
  void leave(EntryId id);
  void forget(EntryId id);
  EntryId oldest_childless(Queue& order);

  Family family_;
  std::vector<Neighbours> links_;
  Queue unpinned_;
  Queue soft_pinned_;
};

}  // namespace mc::agent
