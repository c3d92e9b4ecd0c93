// SPDX-License-Identifier: Apache-2.0
//
// S3-FIFO over the childless objects: a small queue that new objects leave only by a
//   use, a main queue with reinsertion, and ghosts of the objects that the small queue evicted (J.
//   Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
// Threads: only the owner of the pool.
// Owns: its bookkeeping.
// Trusts: its caller; ids from readers are checked against the resident objects.
#pragma once

#include "agent/pool/policy/family.h"
#include "agent/pool/policy/ghosts.h"

namespace mc::agent {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  void insert(const Arrival& arrival) override;
  void touch(EntryId id) override;
  void erase(EntryId id) override;
  void set_pin(EntryId id, PinLevel level) override;
  EntryId evict() override;

  std::string_view name() const override { return "s3fifo"; }
  std::size_t resident_count() const override { return family_.resident_count(); }
  std::size_t memory_bytes() const override;

 private:
  auto links() {
    return [this](EntryId id) -> Family::Slot& { return family_[id]; };
  }
  Queue& queue_of(EntryId id);
  void queue(EntryId id, bool as_newest);
  void unqueue(EntryId id);
  void forget(EntryId id);
  EntryId from_small();
  EntryId from_main();
  EntryId spare_latest(EntryId id);

  Family family_;
  Ghosts ghosts_;
  std::vector<std::uint64_t> key_hashes_;  // by entry
  Queue small_;
  Queue main_;
  Queue soft_pinned_;
  std::size_t small_count_ = 0;
  std::size_t main_count_ = 0;
  std::uint16_t ghost_stamp_ = 0;
  std::uint32_t evictions_ = 0;
  EntryId latest_ = kNoEntry;
};

}  // namespace mc::agent
