// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/shrinker.h"

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::size_t kTickEntries = 4096;             // blocks that a tick examines
constexpr std::uint64_t kTickMovedBytes = 4ull << 20;  // bytes that a tick moves

}  // namespace

void Shrinker::resize(std::uint64_t pool_bytes) {
  pool_.resize(pool_bytes);
  active_ = pool_.shrinking();
  if (!active_) mover_.give_up();
}

void Shrinker::tick() {
  if (!active_) return;
  std::uint64_t budget_bytes = kTickMovedBytes;
  Mover::Step last = Mover::Step::kMoved;
  for (const std::uint32_t id : pool_.tail_owners(kTickEntries)) {
    if (budget_bytes == 0) break;
    // A reservation or an object with readers leaves by itself. An object with several extents may
    // have moved already.
    if (id >= index_.entry_count() || state_of(index_.entry(id)) != shm::EntryState::kLive)
      continue;
    last = mover_.move_some(id, budget_bytes);
    if (last == Mover::Step::kNoRoom) {
      // Hard pins are never evicted: the shrink waits until there is room.
      if (key_field(index_.entry(id)).pin == MC_PIN_HARD) continue;
      evictor_.evict(id, EvictionReason::kShrink);
    }
    MC_FAILPOINT("resize.after_move");
  }
  // The object that was under way has left in another way.
  if (last != Mover::Step::kMore) mover_.give_up();
  limbo_.reclaim();
  pool_.give_back_tails();
  active_ = pool_.shrinking();
}

}  // namespace mc::agent
