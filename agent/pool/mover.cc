// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/mover.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libmc/base/failpoint.h"

namespace mc::agent {

bool Mover::move(std::uint32_t old_id) {
  const shm::Entry& old_entry = index_.entry(old_id);
  const std::uint64_t length = old_entry.length.load_relaxed();
  shm::KeyField field = key_field(old_entry);
  PoolExtents to;
  if (!pool_.allocate(length, true, to)) return false;
  const auto id = index_.acquire_entry();
  OptionalId record;
  if (id) record = index_.store_key(*id, index_.key_of(old_id));
  if (record) field.record = *record;
  if (!id || !record || !extents_.assign(*id, to, length)) {
    for (std::uint32_t i = 0; i < to.count; ++i) pool_.free(to.at[i]);
    if (id) index_.release_entry(*id);
    if (record) index_.free_key(field);
    return false;
  }
  copy_bytes(extents_.of(old_id), to, length);
  shm::Entry& entry = index_.entry(*id);
  field.extent_count = static_cast<std::uint8_t>(to.count);
  entry.checksum.store_relaxed(old_entry.checksum.load_relaxed());
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.parent_hash.store_relaxed(old_entry.parent_hash.load_relaxed());
  entry.attributes.store_relaxed(old_entry.attributes.load_relaxed());
  entry.hash.store_relaxed(old_entry.hash.load_relaxed());
  MC_FAILPOINT("move.before_publish");
  entry.version.store_release(shm::make_version(index_.next_sequence(), shm::EntryState::kLive));
  MC_FAILPOINT("move.after_publish");
  live_.replace_moved(old_id, *id);
  return true;
}

void Mover::copy_bytes(const PoolExtents& from, const PoolExtents& to, std::uint64_t length) {
  std::uint64_t done = 0;
  std::uint32_t in = 0, out = 0;
  std::uint64_t in_at = 0, out_at = 0;
  while (done < length) {
    const std::uint64_t step = std::min(
        {length - done, from.at[in].length_bytes - in_at, to.at[out].length_bytes - out_at});
    std::memcpy(pool_.data() + to.at[out].offset_bytes + out_at,
                pool_.data() + from.at[in].offset_bytes + in_at, step);
    done += step;
    if ((in_at += step) == from.at[in].length_bytes) in_at = 0, ++in;
    if ((out_at += step) == to.at[out].length_bytes) out_at = 0, ++out;
  }
}

}  // namespace mc::agent
