// SPDX-License-Identifier: Apache-2.0
//
// The policy that learns from the pool's own reuse which childless object is worth
//   least. README.md has the picture.
// Threads: only the owner of the pool.
// Owns: its bookkeeping.
// Trusts: its caller; ids from readers are checked against the resident objects.
#pragma once

#include <array>
#include <bitset>
#include <unordered_map>

#include "agent/pool/policy/ages.h"
#include "agent/pool/policy/family.h"
#include "agent/pool/policy/ghosts.h"
#include "agent/pool/policy/reuse.h"

namespace mc::agent {

class PrefixPolicy final : public EvictionPolicy {
 public:
  PrefixPolicy();

  void insert(const Arrival& arrival) override;
  void touch(EntryId id) override;
  void erase(EntryId id) override;
  void set_pin(EntryId id, PinLevel level) override;
  EntryId evict() override;

  std::string_view name() const override { return "prefix"; }
  std::size_t resident_count() const override { return family_.resident_count(); }
  std::size_t memory_bytes() const override;

 private:
  // All objects of one class and about the same age.
  struct Group {
    Queue childless;            // the evictable objects
    std::uint32_t watched = 0;  // all objects, parents and ghosts included
  };
  static constexpr std::size_t kGroups = Reuse::kClasses * Ages::kMaxBuckets;

  auto links() {
    return [this](EntryId id) -> Family::Slot& { return family_[id]; };
  }
  Group& group(std::size_t klass, std::size_t bucket) {
    return groups_[bucket * Reuse::kClasses + klass];
  }
  void queue(EntryId id, bool as_newest);
  void unqueue(EntryId id);
  void restamp(EntryId id, std::uint16_t mark);
  void mark_parent(EntryId id);
  void remember(EntryId id);
  void recall(EntryId id, std::uint64_t key_hash);
  void unwatch(std::uint16_t mark, std::uint16_t stamp);
  void forget(EntryId id);
  EntryId choose() const;

  void tick();
  void start_epoch();
  void merge_groups(std::size_t younger);
  void rank_groups();
  void lengthen_epoch();
  void clamp_stamps();

  Family family_;
  Ghosts ghosts_;
  std::unordered_map<EntryId, std::uint64_t> sampled_;  // key hashes of sampled residents
  Ages ages_;
  Reuse reuse_;
  Reuse::Worth worth_{};
  std::vector<Group> groups_;
  Queue soft_pinned_;
  std::vector<std::uint16_t> rank_;   // by group, 0 goes first
  std::vector<std::uint16_t> order_;  // by rank: the group
  std::bitset<kGroups> occupied_;     // by rank
  std::uint32_t epoch_accesses_;
  std::uint32_t accesses_left_;
  std::uint32_t epoch_number_ = 0;
  bool ranks_are_stale_ = true;
  EntryId latest_ = kNoEntry;
};

}  // namespace mc::agent
