// SPDX-License-Identifier: Apache-2.0
//
// The live objects of a pool, beside their entries: the eviction policy, the groups,
//   the soft pins and the listener. admit() brings an object in, retire() sends the object to
//   limbo.
// Threads: the agent's loop.
// Owns: the policy, the groups and the soft pins, all rebuilt from the entries after a crash.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "agent/pool/index/object_index.h"
#include "agent/pool/limbo.h"
#include "agent/pool/policy/policy.h"
#include "agent/pool/store_listener.h"

namespace mc::agent {

struct StoreCounters {
  std::uint64_t puts = 0, put_bytes = 0, put_existing = 0;
  std::uint64_t evictions = 0, evicted_bytes = 0, removes = 0, moves = 0;
  std::uint64_t no_space = 0, touches = 0;
  std::uint64_t recovered = 0, set_aside = 0;  // at the last start
  std::uint64_t verified = 0, corrupt = 0;     // by the scrubber
};

class LiveObjects {
 public:
  LiveObjects(ObjectIndex& index, Limbo& limbo, StoreCounters& counters,
              std::unique_ptr<EvictionPolicy> policy)
      : index_(index), limbo_(limbo), counters_(counters), policy_(std::move(policy)) {}

  void set_listener(StoreListener* listener) { listener_ = listener; }
  // Notes a new live object. The policy learns of the object later, in admit_pending().
  void admit(std::uint32_t entry, std::uint64_t hash, const PutOrder& order);
  // Tells the policy about new objects: before a question to the policy, or when the agent has
  // time.
  void admit_pending();
  // The policy, with all objects admitted.
  EvictionPolicy& policy() {
    if (!pending_.empty()) admit_pending();
    return *policy_;
  }
  // Sends an object to limbo. REQUIRES: the object is in no table and unknown to the policy.
  void retire(std::uint32_t entry);
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
  std::uint64_t count() const { return policy_->resident_count() + pending_.size(); }
  std::string_view policy_name() const { return policy_->name(); }
  std::uint64_t memory_bytes() const { return policy_->memory_bytes(); }

 private:
  struct Pending {
    std::uint32_t entry;
    std::uint64_t parent_hash, hash, length;
    PinLevel pin;
  };
  void note_soft_pin(std::uint32_t entry, std::uint32_t until_s);
  void forget_group_member(std::uint32_t entry);

  ObjectIndex& index_;
  Limbo& limbo_;
  StoreCounters& counters_;
  std::unique_ptr<EvictionPolicy> policy_;
  StoreListener* listener_ = nullptr;
  std::vector<Pending> pending_;  // live, and not yet known to the policy
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> soft_pins_;  // entry -> expiry, steady seconds
  std::uint64_t next_expiry_ns_ = 0;
  std::uint64_t bytes_ = 0;
};

// The clock of soft pins.
std::uint32_t steady_seconds();

}  // namespace mc::agent
