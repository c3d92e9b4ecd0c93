// SPDX-License-Identifier: Apache-2.0
//
// Checks invariant I4 on a whole ObjectStore: every byte of a pool is exactly one of free, reserved
//   and live.
// Threads: the store's thread.
#pragma once

#include "agent/pool/object_store.h"
#include "bytes.h"

namespace mc::fuzz {

inline void check_ledger(agent::ObjectStore& store) {
  std::vector<shm::ExtentRecord> extents;
  std::uint64_t live = 0, live_bytes = 0, reserved = 0, limbo = 0;
  for (std::uint32_t id = 0; id < store.index().entry_count(); ++id) {
    const shm::Entry& entry = store.index().entry(id);
    const auto state = shm::state_of(entry.version.load_relaxed());
    if (state == shm::EntryState::kFree) continue;
    for (const auto& extent : store.index().extents_of(id)) extents.push_back(extent);
    reserved += state == shm::EntryState::kReserved ? 1 : 0;
    limbo += state == shm::EntryState::kLimbo ? 1 : 0;
    if (state != shm::EntryState::kLive) continue;
    ++live;
    live_bytes += entry.length.load_relaxed();
    const auto found = store.index().find(store.index().key_of(id), entry.hash.load_relaxed());
    require(found == id);
  }
  require(live == store.live_count() && live_bytes == store.live_bytes());
  require(reserved == store.reserved_count() && limbo == store.limbo_count());
  std::sort(extents.begin(), extents.end(),
            [](const auto& a, const auto& b) { return a.offset_bytes < b.offset_bytes; });
  std::uint64_t end = 0, used = 0;
  for (const auto& extent : extents) {
    require(extent.offset_bytes >= end);
    end = extent.offset_bytes + extent.length_bytes;
    used += extent.length_bytes;
  }
  require(end <= store.pool().max_bytes() &&
          used + store.held_bytes() == store.pool().used_bytes());
}

}  // namespace mc::fuzz
