// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/shrinker.h"

#include <vector>

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::size_t kStepEntries = 128;                // objects that a step examines
constexpr std::uint64_t kStepMovedBytes = 512ull << 10;  // bytes that a step moves

}  // namespace

void Shrinker::resize(std::uint64_t pool_bytes) {
  pool_.resize(pool_bytes);
  active_ = pool_.shrinking();
  if (!active_) mover_.give_up();
}

bool Shrinker::step() {
  if (!active_) return false;
  bool worked = false;
  std::uint64_t budget_bytes = kStepMovedBytes;
  std::vector<std::uint32_t> owners = pool_.tail_owners(kStepEntries);
  // A move under way goes first: the attempt to move another object would give the move up.
  if (const OptionalId id = mover_.under_way()) owners.insert(owners.begin(), *id);
  for (const std::uint32_t id : owners) {
    if (budget_bytes == 0) break;
    // A reservation or an object with readers leaves by itself. An object with several extents may
    // have moved already.
    if (id >= index_.entry_count() || state_of(index_.entry(id)) != shm::EntryState::kLive)
      continue;
    if (mover_.move_some(id, budget_bytes) == Mover::Step::kNoRoom) {
      // Hard pins are never evicted: the shrink waits until there is room.
      if (key_field(index_.entry(id)).pin == MC_PIN_HARD) continue;
      if (!evictor_.demotion_keeps_up()) break;
      evictor_.evict(id, EvictionReason::kShrink, Evictor::Bytes::kPaced);
    }
    worked = true;
    MC_FAILPOINT("resize.after_move");
  }
  limbo_.reclaim();
  worked |= pool_.give_back_tails();
  active_ = pool_.shrinking();
  if (!active_) mover_.give_up();  // the pool may have grown again meanwhile
  return active_ && worked;
}

}  // namespace mc::agent
