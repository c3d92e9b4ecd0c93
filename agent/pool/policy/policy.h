// SPDX-License-Identifier: Apache-2.0
//
// The choice of the next object that a full pool evicts. A policy is pure: no clock, no
//   I/O, no randomness; the same calls give the same answers.
// Threads: only the owner of the pool.
// Owns: its bookkeeping, indexed by entry id. A policy never sees the bytes.
// Trusts: its caller. Ids come from the agent's index, never from a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace mc::agent {

// Number of an object's entry in the index; dense, and reused after the object has left.
using EntryId = std::uint32_t;
inline constexpr EntryId kNoEntry = 0xffffffff;

enum class PinLevel : std::uint8_t {
  kNone = 0,
  kSoft = 1,  // evicted only if no unpinned object is left
  kHard = 2,  // never evicted
};

struct Arrival {
  EntryId id = kNoEntry;
  EntryId parent = kNoEntry;   // resident parent, or kNoEntry: the object is a root
  std::uint64_t key_hash = 0;  // for memories of evicted objects ("ghosts")
  std::uint64_t bytes = 0;
  PinLevel pin = PinLevel::kNone;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // REQUIRES: id is not resident.
  virtual void insert(const Arrival& arrival) = 0;
  // A reader used the object. Unknown ids are ignored, since the reader may be late or lying.
  virtual void touch(EntryId id) = 0;
  // The object left for another reason than eviction. Its children become roots.
  virtual void erase(EntryId id) = 0;
  virtual void set_pin(EntryId id, PinLevel level) = 0;
  // Chooses a victim, forgets the victim as resident and returns it; kNoEntry if all objects left
  // are hard pinned. Never returns an object with a resident child.
  virtual EntryId evict() = 0;

  virtual std::string_view name() const = 0;
  virtual std::size_t resident_count() const = 0;
  // Heap bytes, for the figure "bookkeeping per object".
  virtual std::size_t memory_bytes() const = 0;
};

// name: "lru", "s3fifo" or "prefix"; null for any other name.
std::unique_ptr<EvictionPolicy> make_policy(std::string_view name);
// The names that make_policy() accepts, default first.
std::vector<std::string_view> policy_names();

}  // namespace mc::agent
