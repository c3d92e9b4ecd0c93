// SPDX-License-Identifier: Apache-2.0
//
// The live objects of a pool, beside their entries: the eviction policy, the groups,
//   the soft pins and the listener. admit() brings an object in, retire() sends the object to
//   limbo.
// Threads: the agent's loop.
// Owns: the policy, the groups and the soft pins, all rebuilt from the entries after a crash.
// Trusts: its caller.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "agent/pool/adopted_objects.h"
#include "agent/pool/index/object_index.h"
#include "agent/pool/limbo.h"
#include "agent/pool/policy/policy.h"
#include "agent/pool/store_listener.h"

namespace mc::agent {

enum class EvictionReason : std::uint8_t {
  kRoom,      // for a reservation, or ahead of the next one
  kCapacity,  // for the limit of live bytes
  kShrink,    // from the end of a pool that shrinks
  kGroup,     // a part of a group that is not published
  kOperator,  // an operator asked for free memory
};

struct StoreCounters {
  std::uint64_t puts = 0, put_bytes = 0, put_existing = 0;
  std::uint64_t evictions = 0, evicted_bytes = 0, removes = 0, moves = 0;
  std::array<std::uint64_t, 5> evictions_for{};  // by EvictionReason
  std::uint64_t no_space = 0, touches = 0;
  std::uint64_t recovered = 0, set_aside = 0;  // at the last start
  std::uint64_t verified = 0, corrupt = 0;     // by the scrubber
  std::uint64_t reported = 0;                  // by clients whose bytes did not match
};

class LiveObjects {
 public:
  LiveObjects(ObjectIndex& index, Limbo& limbo, StoreCounters& counters,
              std::unique_ptr<EvictionPolicy> policy)
      : index_(index), limbo_(limbo), counters_(counters), policy_(std::move(policy)) {}

  void set_listener(StoreListener* listener) { listener_ = listener; }
  // Takes note of uses from now on, for was_used().
  void note_uses() { notes_uses_ = true; }
  // True if a reader has used the object since its put.
  bool was_used(std::uint32_t entry) const { return entry < used_.size() && used_[entry]; }
  // Notes a new live object. The policy learns of the object later: before a question to the
  // policy, or in catch_up().
  void admit(std::uint32_t entry, std::uint64_t hash, const PutOrder& order);
  // Notes a live object of an earlier agent. Call adopted_all() after the last one.
  void adopt(std::uint32_t entry);
  void adopted_all() { adopted_.sort(); }
  // Tells the policy about the new objects and about this many adopted objects.
  void catch_up(std::uint64_t most_adopted);

  // A reader used the object.
  void touch(std::uint32_t entry);
  // The policy's choice, which the policy forgets; kNoEntry if all objects left are hard pinned.
  std::uint32_t choose_victim();
  // Takes an object from the policy.
  void forget(std::uint32_t entry);
  // Sends an object to limbo. REQUIRES: the object is in no table and unknown to the policy.
  enum class Bytes : std::uint8_t { kFree, kHeld };
  void retire(std::uint32_t entry, Bytes bytes = Bytes::kFree);
  // Takes an object out of policy and table, and sends the object to limbo.
  void remove(std::uint32_t entry);
  // Replaces an entry by the entry of the moved object, in a single store. The old bytes go to
  // limbo.
  void replace_moved(std::uint32_t from, std::uint32_t to);

  // The members of a group; empty for an unknown group and for 0.
  std::span<const std::uint32_t> group(std::uint32_t number) const;
  void set_pin(std::uint32_t entry, mc_pin pin, std::uint32_t ttl_s);
  // Removes the soft pins that have expired.
  void expire_soft_pins(std::uint64_t now_ns);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t count() const {
    return policy_->resident_count() + pending_.size() + adopted_.count();
  }
  std::string_view policy_name() const { return policy_->name(); }
  std::uint64_t memory_bytes() const {
    return policy_->memory_bytes() + adopted_.memory_bytes() + used_.capacity() / 8;
  }

 private:
  struct Pending {
    std::uint32_t entry;
    std::uint64_t parent_hash, hash, length;
    PinLevel pin;
  };
  void admit_pending();
  void admit_adopted(std::uint32_t entry);
  Pending pending_of(std::uint32_t entry) const;
  void insert(const Pending& object);
  void set_level(std::uint32_t entry, PinLevel level);
  void note_soft_pin(std::uint32_t entry, std::uint32_t until_s);
  void note_use(std::uint32_t entry, bool used);
  void forget_group_member(std::uint32_t entry);

  ObjectIndex& index_;
  Limbo& limbo_;
  StoreCounters& counters_;
  std::unique_ptr<EvictionPolicy> policy_;
  StoreListener* listener_ = nullptr;
  std::vector<Pending> pending_;  // live, and not yet known to the policy
  AdoptedObjects adopted_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> soft_pins_;  // entry -> expiry, steady seconds
  std::uint64_t next_expiry_ns_ = 0;
  std::uint64_t bytes_ = 0;
  bool notes_uses_ = false;
  std::vector<bool> used_;  // by entry
};

// The clock of soft pins.
std::uint32_t steady_seconds();

}  // namespace mc::agent
