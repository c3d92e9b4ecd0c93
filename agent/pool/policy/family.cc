// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/family.h"

#include <limits>

namespace mc::agent {

EntryId Family::parent_of(EntryId id) const {
  const Slot& slot = at(id);
  if (slot.parent == kNoEntry || at(slot.parent).birth != slot.parent_birth) return kNoEntry;
  return slot.parent;
}

void Family::insert(EntryId id, EntryId parent) {
  grow_to(id);
  Slot& slot = (*this)[id];
  const std::uint16_t birth = slot.birth;
  slot = Slot{};
  slot.birth = birth;
  if (contains(parent)) {
    Slot& above = (*this)[parent];
    if (!above.is_parent) above.child_count = 0;
    above.is_parent = 1;
    ++above.child_count;
    slot.parent = parent;
    slot.parent_birth = above.birth;
  }
  slot.is_resident = 1;
  ++resident_count_;
}

EntryId Family::erase(EntryId id) {
  Slot& slot = (*this)[id];
  const EntryId parent = parent_of(id);
  slot.is_resident = 0;
  --resident_count_;
  if (slot.is_parent) {
    if (slot.birth == std::numeric_limits<std::uint16_t>::max()) renumber_births();
    ++slot.birth;
    slot.is_parent = 0;
  }
  if (parent == kNoEntry) return kNoEntry;
  Slot& above = (*this)[parent];
  if (--above.child_count > 0) return kNoEntry;
  above.is_parent = 0;
  return parent;
}

std::size_t Family::memory_bytes() const {
  return chunks_.size() * kChunk * sizeof(Slot) + chunks_.capacity() * sizeof(chunks_[0]);
}

void Family::grow_to(EntryId id) {
  while (chunks_.size() * kChunk <= id) chunks_.push_back(std::make_unique<Slot[]>(kChunk));
  if (slot_count_ <= id) slot_count_ = std::size_t{id} + 1;
}

// An id has lost its children 65,535 times: a walk over all slots is cheap in comparison.
void Family::renumber_births() {
  for (EntryId id = 0; id < slot_count_; ++id) {
    Slot& slot = (*this)[id];
    slot.parent = parent_of(id);
    slot.parent_birth = 0;
  }
  for (EntryId id = 0; id < slot_count_; ++id) (*this)[id].birth = 0;
}

}  // namespace mc::agent
