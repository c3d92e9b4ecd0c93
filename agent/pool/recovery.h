// SPDX-License-Identifier: Apache-2.0
//
// Rebuilds an ObjectStore from the files of an agent that was killed. The version word
//   of an entry decides: kLive is an object, kReserved is a reservation whose client may still
//   write, kLimbo is an object that readers may still hold, and every other entry is free. Each
//   entry is checked first (bounds, overlap, key hash, one entry a key). Damaged entries are set
//   aside and counted. The scrubber compares the checksums later.
// Threads: the agent's loop, before the agent serves.
// Owns: the fate of each entry.
// Trusts: nothing in the files.
#pragma once

#include "agent/pool/object_store.h"

namespace mc::agent {

class Recovery {
 public:
  struct Parts {
    ObjectIndex& index;
    ExtentPool& pool;
    EntryExtents& extents;
    LiveObjects& live;
    Limbo& limbo;
    StoreCounters& counters;
  };
  Recovery(const Parts& parts, const ObjectStore::SessionKnown& session_known)
      : parts_(parts), index_(parts.index), session_known_(session_known) {}
  Status run();
  std::uint64_t reserved_count() const { return reserved_count_; }

 private:
  enum class Fate : std::uint8_t { kFree, kReserved, kLive, kLimbo };

  void undo_unfinished_publication();
  void judge_entries();
  Fate judge(std::uint32_t id) const;
  bool key_is_sound(std::uint32_t id) const;
  void claim_extents();
  void claim_records();
  void set_aside(std::uint32_t id);
  void choose_between_duplicates();
  void admit_all();
  void admit_family(std::uint32_t id);
  void admit_one(std::uint32_t id);

  Parts parts_;
  ObjectIndex& index_;
  const ObjectStore::SessionKnown& session_known_;
  std::vector<Fate> fates_;
  std::vector<bool> settled_;  // admitted to the policy, or released
  std::uint64_t last_sequence_ = 0;
  std::uint64_t reserved_count_ = 0;
};

}  // namespace mc::agent
