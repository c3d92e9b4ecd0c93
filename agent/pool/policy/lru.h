// SPDX-License-Identifier: Apache-2.0
//
// What it is: least recently used, a parent counting as used whenever a descendant is.
// Threads: one; the owner of the pool calls it.
// Owns: one recency order for unpinned objects, one for soft-pinned ones.
// Trusts: its caller; ids a reader names are checked against the resident ones.
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
  struct Link {
    EntryId older = kNoEntry;
    EntryId newer = kNoEntry;
  };

  // Parents have links of their own here, being in the order too; Family's count their children.
  auto links() {
    return [this](EntryId id) -> Link& { return links_[id]; };
  }
  Queue& order_of(EntryId id);
  void enter_newest(EntryId id);
  void leave(EntryId id);
  void forget(EntryId id);
  EntryId oldest_childless(Queue& order);

  Family family_;
  std::vector<Link> links_;
  Queue unpinned_;
  Queue soft_pinned_;
};

}  // namespace mc::agent
