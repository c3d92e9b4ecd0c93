// SPDX-License-Identifier: Apache-2.0
//
// Rebuilds an ObjectStore from the files of an agent that was killed. The version word
//   of an entry decides: kLive is an object, kReserved is a reservation whose client may still
//   write, kLimbo is an object that readers may still hold, and every other entry is free. Each
//   entry is checked first (bounds, overlap, key hash, one entry a key). Damaged entries are set
//   aside and counted. The scrubber compares the checksums.
// Threads: the agent's loop, before the agent serves.
// Owns: the fate of each entry.
// Trusts: nothing in the files.
#pragma once

#include <functional>
#include <vector>

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
  // on_progress: called again and again, at least once for each few thousand entries.
  Recovery(const Parts& parts, const ObjectStore::SessionKnown& session_known,
           const std::function<void()>& on_progress)
      : parts_(parts),
        index_(parts.index),
        session_known_(session_known),
        on_progress_(on_progress) {}
  Status run();
  std::vector<ObjectStore::Reservation> take_reservations() { return std::move(reservations_); }

 private:
  enum class Fate : std::uint8_t { kFree, kReserved, kLive, kLimbo };

  template <typename Use>
  void for_each_entry(Use use) const;
  void undo_unfinished_publication();
  void judge_entries();
  Fate judge(std::uint32_t id, const ObjectIndex::Extents& extents) const;
  bool key_is_sound(std::uint32_t id) const;
  void claim_extents();
  void claim_records();
  void set_aside(std::uint32_t id);
  void fill_table();
  void insert_rest();
  bool insert(std::uint32_t id);
  void settle_entries();

  Parts parts_;
  ObjectIndex& index_;
  const ObjectStore::SessionKnown& session_known_;
  const std::function<void()>& on_progress_;
  std::vector<Fate> fates_;
  std::vector<ExtentPool::Claim> claims_;
  std::vector<std::uint32_t> with_records_;  // a long key or several extents
  std::vector<std::uint32_t> rest_;          // found no room in the table
  std::uint64_t last_sequence_ = 0;
  std::vector<ObjectStore::Reservation> reservations_;
};

}  // namespace mc::agent
