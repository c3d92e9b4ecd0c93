// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/shrinker.h"

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kTickEntries = 4096;           // entries that a tick examines
constexpr std::uint64_t kTickMovedBytes = 4ull << 20;  // bytes that a tick moves

}  // namespace

void Shrinker::resize(std::uint64_t pool_bytes) {
  pool_.resize(pool_bytes);
  active_ = pool_.shrinking();
  cursor_ = 0;
}

void Shrinker::tick() {
  if (!active_) return;
  std::uint64_t moved_bytes = 0;
  for (std::uint64_t i = 0; i < kTickEntries && moved_bytes < kTickMovedBytes; ++i) {
    if (cursor_ >= index_.entry_count()) {
      cursor_ = 0;
      break;
    }
    const auto id = static_cast<std::uint32_t>(cursor_++);
    const shm::Entry& entry = index_.entry(id);
    if (state_of(entry) != shm::EntryState::kLive || extents_.tail_bytes(id) == 0) continue;
    moved_bytes += extents_.of(id).bytes();
    if (!mover_.move(id)) {
      // Hard pins are never evicted: the shrink waits until there is room.
      if (key_field(entry).pin == MC_PIN_HARD) continue;
      evictor_.evict(id);
    }
    MC_FAILPOINT("resize.after_move");
  }
  limbo_.reclaim();
  if (pool_.finish_shrinking()) active_ = false;
}

}  // namespace mc::agent
