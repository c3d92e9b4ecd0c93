// SPDX-License-Identifier: Apache-2.0
//
// What it is: rebuilding a ObjectStore from the files of an agent that was killed. The entries' version
// words
//   decide: kLive is an object, kReserved a client's that may still be writing, kLimbo an object
//   that readers may still hold, all else is free. Each is checked (bounds, overlap, key hash, one
//   entry a key) before it is believed; what fails is set aside and counted. Checksums are the
//   scrubber's job.
// Threads: the agent's loop, before it serves. Trusts: nothing in the files.
#pragma once

#include "agent/pool/object_store.h"

namespace mc::agent {

class Recovery {
 public:
  Recovery(ObjectStore& store, const ObjectStore::SessionKnown& session_known)
      : store_(store), index_(*store.index_), session_known_(session_known) {}
  Status run();

 private:
  enum class Fate : std::uint8_t { kFree, kReserved, kLive, kLimbo };

  void undo_unfinished_publication();
  void judge_entries();
  Fate judge(std::uint32_t id) const;
  bool key_is_sound(std::uint32_t id) const;
  void claim_extents();
  void claim_records();
  void choose_between_duplicates();
  void discard(std::uint32_t id);
  void admit_all();
  void admit_family(std::uint32_t id);
  void admit_one(std::uint32_t id);

  ObjectStore& store_;
  ObjectIndex& index_;
  const ObjectStore::SessionKnown& session_known_;
  std::vector<Fate> fates_;
  std::vector<bool> admitted_;
  std::uint64_t last_sequence_ = 0;
};

}  // namespace mc::agent
