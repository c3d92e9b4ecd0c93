// SPDX-License-Identifier: Apache-2.0
//
// What it is: the decision which object a full pool gives up next. A policy is pure: no clock, no
// I/O, no randomness of its own; the same calls give the same answers.
// Threads: one; the owner of the pool calls it.
// Owns: its own bookkeeping, indexed by entry id. It never sees the bytes.
// Trusts: its caller. Ids come from the agent's index, never from a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace mc::agent {

// Number of an object's entry in the node index; dense, reused after the object is gone.
using EntryId = std::uint32_t;
inline constexpr EntryId kNoEntry = 0xffffffff;

enum class PinLevel : std::uint8_t {
  kNone = 0,
  kSoft = 1,  // evicted only when nothing unpinned is left
  kHard = 2,  // never evicted
};

struct Arrival {
  EntryId id = kNoEntry;
  EntryId parent = kNoEntry;   // resident parent, or kNoEntry: then the object is a root
  std::uint64_t key_hash = 0;  // for memories of objects that were evicted ("ghosts")
  std::uint64_t bytes = 0;
  PinLevel pin = PinLevel::kNone;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // REQUIRES: id is not resident.
  virtual void insert(const Arrival& arrival) = 0;
  // A reader used the object. Unknown ids are ignored (the reader may be late or lying).
  virtual void touch(EntryId id) = 0;
  // The object left for another reason than eviction. Its children, if any, become roots.
  virtual void erase(EntryId id) = 0;
  virtual void set_pin(EntryId id, PinLevel level) = 0;
  // Chooses a victim, forgets it as resident and returns it; kNoEntry when everything left is hard
  // pinned. Never returns an object that has a resident child.
  virtual EntryId evict() = 0;

  virtual std::string_view name() const = 0;
  virtual std::size_t resident_count() const = 0;
  // Heap bytes held, for the figure "bookkeeping per object".
  virtual std::size_t memory_bytes() const = 0;
};

// name: "lru", "s3fifo" or "prefix"; null for any other name.
std::unique_ptr<EvictionPolicy> make_policy(std::string_view name);
// The names make_policy() accepts, default first.
std::vector<std::string_view> policy_names();

}  // namespace mc::agent
