// SPDX-License-Identifier: Apache-2.0
//
// What it is: the order in which removals were remembered, so that the oldest can be forgotten when
//   there are too many, and the border below which removals may have been forgotten.
//   The tombstones themselves are slots of the table, where a publish meets them without looking.
// Threads: the directory's. Owns: 24 bytes a tombstone, at most as many as it was told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "metadata/directory/key_hash.h"

namespace mc::metadata {

class Tombstones {
 public:
  struct Mark {
    KeyHash hash;
    std::uint64_t removal = 0;
  };

  explicit Tombstones(std::uint64_t max_count) : max_count_(max_count) {}

  [[nodiscard]] bool full() const { return marks_.size() >= max_count_; }
  void remember(KeyHash hash, std::uint64_t removal) { marks_.push_back({hash, removal}); }
  // REQUIRES: count() != 0.
  Mark oldest() {
    const Mark mark = marks_.front();
    marks_.pop_front();
    return mark;
  }

  // This removal will not be recognised any more.
  void forgot(std::uint64_t removal, std::uint64_t version) {
    forgotten_removal_ = std::max(forgotten_removal_, removal);
    forgotten_version_ = std::max(forgotten_version_, version);
  }
  // Whether a version told by somebody who had heard of all removals until `seen_removal` may be
  // one that was removed later and forgotten here.
  [[nodiscard]] bool uncertain(std::uint64_t seen_removal, std::uint64_t version) const {
    return seen_removal < forgotten_removal_ && version <= forgotten_version_;
  }

  [[nodiscard]] std::uint64_t forgotten_version() const { return forgotten_version_; }
  [[nodiscard]] std::uint64_t count() const { return marks_.size(); }
  [[nodiscard]] std::uint64_t memory_bytes() const { return marks_.size() * sizeof(Mark); }

 private:
  std::uint64_t max_count_;
  std::deque<Mark> marks_;
  std::uint64_t forgotten_removal_ = 0;
  std::uint64_t forgotten_version_ = 0;
};

}  // namespace mc::metadata
