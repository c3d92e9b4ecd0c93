// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/entry_extents.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libmc/base/failpoint.h"

namespace mc::agent {

[[gnu::hot]] bool EntryExtents::assign(std::uint32_t id, const PoolExtents& extents,
                                       std::uint64_t length) {
  shm::Entry& entry = index_.entry(id);
  std::uint64_t extent = extents.at[0].offset_bytes;
  if (extents.count > 1) {
    shm::ExtentRecord records[MC_MAX_EXTENTS];
    for (std::uint32_t i = 0; i < extents.count; ++i) {
      records[i] = {extents.at[i].offset_bytes, extents.at[i].length_bytes};
    }
    const auto record = index_.store_extents({records, extents.count});
    if (!record) return false;
    extent = *record;
  }
  shm::KeyField field{};
  field.extent_count = static_cast<std::uint8_t>(extents.count);
  entry.extent.store_relaxed(extent);
  entry.length.store_relaxed(length);
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));

  if (id >= blocks_.size()) blocks_.resize(id + 1, kNoBlock);
  blocks_[id] = extents.at[0].node;
  many_blocks_.erase(id);
  for (std::uint32_t i = 0; i < extents.count; ++i) pool_.set_owner(extents.at[i], id);
  if (extents.count == 1) return true;
  std::vector<BlockId>& blocks = many_blocks_[id];
  for (std::uint32_t i = 0; i < extents.count; ++i) blocks.push_back(extents.at[i].node);
  return true;
}

bool EntryExtents::trim(std::uint32_t id, std::uint64_t length) {
  PoolExtents kept = of(id);
  const std::uint32_t had = kept.count;
  const std::uint64_t old_record = index_.entry(id).extent.load_relaxed();
  pool_.trim(kept, length);
  if (had > 1) {
    index_.keys().free(static_cast<std::uint32_t>(old_record),
                       static_cast<std::uint32_t>(had * sizeof(shm::ExtentRecord)));
  }
  return assign(id, kept, length);
}

[[gnu::hot]] PoolExtents EntryExtents::of(std::uint32_t id) const {
  PoolExtents result;
  const shm::Entry& entry = index_.entry(id);
  if (has_one_extent(id)) {
    const std::uint64_t length = entry.length.load_relaxed();
    result.count = 1;
    result.at[0] = {entry.extent.load_relaxed(),
                    (length + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes, blocks_[id]};
    return result;
  }
  const ObjectIndex::Extents records = index_.extents_of(id);
  const auto many = many_blocks_.find(id);
  result.count = static_cast<std::uint32_t>(records.size());
  for (std::uint32_t i = 0; i < result.count; ++i) {
    const BlockId block = many == many_blocks_.end() ? blocks_[id] : many->second[i];
    result.at[i] = {records[i].offset_bytes, records[i].length_bytes, block};
  }
  return result;
}

void EntryExtents::free(std::uint32_t id) {
  shm::Entry& entry = index_.entry(id);
  const PoolExtents gone = of(id);
  const shm::KeyField field = key_field(entry);
  const std::uint64_t extent = entry.extent.load_relaxed();
  // The word that recovery believes changes before the memory that the word guards.
  index_.set_state(id, shm::EntryState::kFree);
  MC_FAILPOINT("free.after_publish");
  for (std::uint32_t i = 0; i < gone.count; ++i) pool_.free(gone.at[i]);
  if (field.extent_count > 1) {
    const std::uint64_t bytes = field.extent_count * sizeof(shm::ExtentRecord);
    index_.keys().free(static_cast<std::uint32_t>(extent), static_cast<std::uint32_t>(bytes));
    many_blocks_.erase(id);
  }
  index_.free_key(field);
  index_.release_entry(id);
}

// Calls step(pool offset, bytes) for each contiguous piece of the range.
template <typename Step>
void EntryExtents::for_stretch(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes,
                               Step step) const {
  const PoolExtents lies = of(id);
  for (std::uint32_t i = 0; i < lies.count && bytes > 0; ++i) {
    const PoolExtent& extent = lies.at[i];
    if (offset >= extent.length_bytes) {
      offset -= extent.length_bytes;
      continue;
    }
    const std::uint64_t piece = std::min(bytes, extent.length_bytes - offset);
    step(extent.offset_bytes + offset, piece);
    bytes -= piece;
    offset = 0;
  }
}

void EntryExtents::read(std::uint32_t id, std::uint64_t offset, std::span<std::byte> to) const {
  std::byte* at = to.data();
  for_stretch(id, offset, to.size(), [&](std::uint64_t from, std::uint64_t bytes) {
    std::memcpy(at, pool_.data() + from, bytes);
    at += bytes;
  });
}

void EntryExtents::write(std::uint32_t id, std::uint64_t offset, std::span<const std::byte> from) {
  const std::byte* at = from.data();
  for_stretch(id, offset, from.size(), [&](std::uint64_t to, std::uint64_t bytes) {
    std::memcpy(pool_.data() + to, at, bytes);
    at += bytes;
  });
}

std::uint64_t EntryExtents::tail_bytes(std::uint32_t id) const {
  const PoolExtents lies = of(id);
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < lies.count; ++i) {
    const PoolExtent& extent = lies.at[i];
    if (pool_.must_leave(extent.offset_bytes, extent.length_bytes)) bytes += extent.length_bytes;
  }
  return bytes;
}

void EntryExtents::claimed(std::uint32_t id, std::uint32_t part, std::uint32_t count,
                           BlockId block) {
  if (part == 0) blocks_[id] = block;
  if (count <= 1) return;
  std::vector<BlockId>& many = many_blocks_[id];
  many.resize(count, kNoBlock);
  many[part] = block;
}

void EntryExtents::unclaim(std::uint32_t id) {
  const PoolExtents extents = of(id);
  for (std::uint32_t i = 0; i < extents.count; ++i) {
    if (extents.at[i].node != kNoBlock) pool_.free(extents.at[i]);
  }
  many_blocks_.erase(id);
}

}  // namespace mc::agent
