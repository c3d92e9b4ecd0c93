// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/mover.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "libmc/base/failpoint.h"

namespace mc::agent {

bool Mover::move(std::uint32_t id) {
  const std::uint64_t length = index_.entry(id).length.load_relaxed();
  PoolExtents to;
  if (!pool_.allocate(length, true, to)) return false;
  copy_bytes(extents_.of(id), to, 0, length);
  return publish(id, to);
}

Mover::Step Mover::move_some(std::uint32_t id, std::uint64_t& budget_bytes) {
  const std::uint64_t version = index_.entry(id).version.load_relaxed();
  const std::uint64_t length = index_.entry(id).length.load_relaxed();
  if (under_way_.entry != id || under_way_.version != version) {
    give_up();
    if (!pool_.allocate(length, true, under_way_.to)) return Step::kNoRoom;
    under_way_.entry = id;
    under_way_.version = version;
  }
  const std::uint64_t end = std::min(length, under_way_.done_bytes + budget_bytes);
  copy_bytes(extents_.of(id), under_way_.to, under_way_.done_bytes, end);
  budget_bytes -= end - under_way_.done_bytes;
  under_way_.done_bytes = end;
  if (end < length) return Step::kMore;
  const PoolExtents to = std::exchange(under_way_, UnderWay{}).to;
  return publish(id, to) ? Step::kMoved : Step::kNoRoom;
}

OptionalId Mover::under_way() {
  if (under_way_.entry == kNoEntry) return std::nullopt;
  if (index_.entry(under_way_.entry).version.load_relaxed() == under_way_.version)
    return under_way_.entry;
  give_up();
  return std::nullopt;
}

void Mover::give_up() { free(std::exchange(under_way_, UnderWay{}).to); }

// Gives the object a new entry with these extents, which hold the object's bytes. Frees the extents if
// memory is short.
bool Mover::publish(std::uint32_t old_id, const PoolExtents& to) {
  const shm::Entry& old_entry = index_.entry(old_id);
  const std::uint64_t length = old_entry.length.load_relaxed();
  shm::KeyField field = key_field(old_entry);
  const auto id = index_.acquire_entry();
  OptionalId record;
  if (id) record = index_.store_key(*id, index_.key_of(old_id));
  if (record) field.record = *record;
  if (!id || !record || !extents_.assign(*id, to, length)) {
    free(to);
    if (id) index_.release_entry(*id);
    if (record) index_.free_key(field);
    return false;
  }
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

void Mover::free(const PoolExtents& extents) {
  for (std::uint32_t i = 0; i < extents.count; ++i) pool_.free(extents.at[i]);
}

// Copies the object's bytes from begin to end.
void Mover::copy_bytes(const PoolExtents& from, const PoolExtents& to, std::uint64_t begin,
                       std::uint64_t end) {
  struct ExtentCursor {
    explicit ExtentCursor(const PoolExtents& of) : extents(of) {}
    // Moves on by this many bytes; never over the end of more than the current extent.
    void pass(std::uint64_t bytes) {
      at += bytes;
      if (at == extents.at[number].length_bytes) at = 0, ++number;
    }
    void skip(std::uint64_t bytes) {
      while (bytes > 0) {
        const std::uint64_t step = std::min(bytes, left());
        pass(step);
        bytes -= step;
      }
    }
    std::uint64_t left() const { return extents.at[number].length_bytes - at; }
    std::uint64_t offset() const { return extents.at[number].offset_bytes + at; }

    const PoolExtents& extents;
    std::uint32_t number = 0;
    std::uint64_t at = 0;
  };
  ExtentCursor in(from), out(to);
  in.skip(begin);
  out.skip(begin);
  while (begin < end) {
    const std::uint64_t step = std::min({end - begin, in.left(), out.left()});
    std::memcpy(pool_.data() + out.offset(), pool_.data() + in.offset(), step);
    in.pass(step);
    out.pass(step);
    begin += step;
  }
}

}  // namespace mc::agent
