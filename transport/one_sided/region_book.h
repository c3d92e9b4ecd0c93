// SPDX-License-Identifier: Apache-2.0
//
// The registered memory of a one-sided transport: names that are never used twice, and
//   the region of an address.
// Threads: the transport's.
// Owns: the rows, never the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "libmc/base/hash.h"
#include "transport/limits.h"
#include "transport/transport.h"

namespace mc::transport {

// REQUIRES: Row has the members `RegionId id` and `RegionSpec spec`.
template <typename Row>
class RegionBook {
 public:
  // Names of an earlier incarnation of the node are stale.
  RegionBook(NodeId node, std::uint64_t incarnation) {
    const std::uint64_t words[2] = {node, incarnation};
    next_generation_ = static_cast<std::uint32_t>(hash_key(words, sizeof words, incarnation)) | 1;
  }

  // Checks the properties that every region needs. Errors: MC_INVALID_ARGUMENT, MC_BUSY (4096
  // regions).
  Status admit(const RegionSpec& spec) const {
    if (spec.data == nullptr || spec.size_bytes == 0 || (spec.rights & ~kKnownRights) != 0) {
      return {MC_INVALID_ARGUMENT, "a region needs memory, a size and known rights"};
    }
    if (free_row() >= kMaxRegions) {
      return {MC_BUSY, "4096 regions are registered already; close some"};
    }
    return {};
  }
  // Adds a row and sets its id. REQUIRES: admit() accepted the spec.
  RegionId add(std::unique_ptr<Row> row) {
    const std::size_t index = free_row();
    if (index == rows_.size()) rows_.emplace_back();
    row->id = (std::uint64_t{next_generation_++} << 32) | (index + 1);
    by_address_.emplace(row->spec.data, row.get());
    rows_[index] = std::move(row);
    return rows_[index]->id;
  }
  Row* at(RegionId id) const {
    const std::uint64_t index = (id & 0xffffffffu) - 1;
    return index < rows_.size() && rows_[index] && rows_[index]->id == id ? rows_[index].get()
                                                                          : nullptr;
  }
  // REQUIRES: at(id) is not null.
  void remove(RegionId id) {
    std::erase_if(by_address_, [&](const auto& entry) { return entry.second->id == id; });
    rows_[(id & 0xffffffffu) - 1].reset();
  }
  // The region that the piece lies in; kNoRegion: none.
  RegionId find(const Piece& piece) const {
    if (piece.region != kNoRegion) {
      const Row* row = at(piece.region);
      return row != nullptr && holds(*row, piece) ? piece.region : kNoRegion;
    }
    for (auto after = by_address_.upper_bound(piece.data); after != by_address_.begin();) {
      --after;
      if (holds(*after->second, piece)) return after->second->id;
    }
    return kNoRegion;
  }
  // A row may be null.
  const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }

 private:
  static bool holds(const Row& row, const Piece& piece) {
    return piece.data >= row.spec.data && piece.size_bytes <= row.spec.size_bytes &&
           static_cast<std::uint64_t>(piece.data - row.spec.data) <=
               row.spec.size_bytes - piece.size_bytes;
  }
  std::size_t free_row() const {
    return static_cast<std::size_t>(
        std::ranges::find_if(rows_, [](const auto& row) { return row == nullptr; }) -
        rows_.begin());
  }

  std::vector<std::unique_ptr<Row>> rows_;  // by the low half of the id
  std::uint32_t next_generation_;
  std::multimap<const std::byte*, Row*> by_address_;
};

}  // namespace mc::transport
