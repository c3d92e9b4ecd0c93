// SPDX-License-Identifier: Apache-2.0
//
// The parents of the resident objects, in 20 bytes an object. A policy can therefore
//   keep exactly the childless objects in its queues.
// Threads: the policy's thread.
// Owns: a slot per entry id ever used. Slots are never freed, since ids are dense.
// Trusts: its caller, the policy.
#pragma once

#include <memory>
#include <vector>

#include "agent/pool/policy/policy.h"
#include "agent/pool/policy/queue.h"

namespace mc::agent {

class Family {
 public:
  // An object with children is in no queue, so the place of the links holds the number of children.
  struct Slot {
    EntryId parent = kNoEntry;
    union {
      EntryId older = kNoEntry;
      std::uint32_t child_count;  // when is_parent
    };
    EntryId newer = kNoEntry;
    // An erased parent leaves its children with a birth number that no longer matches. The children
    // become roots without a walk over them.
    std::uint16_t birth = 0;
    std::uint16_t parent_birth = 0;
    // The policy may use both fields.
    std::uint16_t stamp = 0;
    std::uint16_t mark : 13 = 0;
    std::uint16_t is_resident : 1 = 0;
    std::uint16_t is_parent : 1 = 0;
    std::uint16_t is_queued : 1 = 0;
  };
  static_assert(sizeof(Slot) == 20);

  [[nodiscard]] bool contains(EntryId id) const { return id < slot_count_ && at(id).is_resident; }
  // REQUIRES: id was inserted at some time.
  [[nodiscard]] Slot& operator[](EntryId id) { return chunks_[id / kChunk][id % kChunk]; }
  [[nodiscard]] const Slot& at(EntryId id) const { return chunks_[id / kChunk][id % kChunk]; }

  // The resident parent, or kNoEntry.
  [[nodiscard]] EntryId parent_of(EntryId id) const;

  // REQUIRES: id is not resident. A childless parent must leave its queue before its first child
  // comes. A parent that is not resident counts as none.
  void insert(EntryId id, EntryId parent);
  // Returns the parent if it has just become childless, else kNoEntry. REQUIRES: id is resident and
  // in no queue.
  EntryId erase(EntryId id);

  [[nodiscard]] std::size_t resident_count() const { return resident_count_; }
  [[nodiscard]] std::size_t slot_count() const { return slot_count_; }
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  // Growth by chunks copies nothing and leaves at most one chunk unused.
  static constexpr std::size_t kChunk = 512;

  void grow_to(EntryId id);
  void renumber_births();

  std::vector<std::unique_ptr<Slot[]>> chunks_;
  std::size_t slot_count_ = 0;
  std::size_t resident_count_ = 0;
};

}  // namespace mc::agent
