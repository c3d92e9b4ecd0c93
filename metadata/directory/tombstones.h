// SPDX-License-Identifier: Apache-2.0
//
// The order of remembered removals, so that the oldest removal can be forgotten, and
//   the border below which removals may have been forgotten. The tombstones themselves are slots of
//   the table, where a publish finds them without another lookup.
// Threads: the directory's.
// Owns: 24 bytes a tombstone, at most max_count tombstones.
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

  // Publishes of this removed version will no longer be recognised.
  void forgot(std::uint64_t removal, std::uint64_t version) {
    forgotten_removal_ = std::max(forgotten_removal_, removal);
    forgotten_version_ = std::max(forgotten_version_, version);
  }
  // Whether this version may have been removed and then forgotten here. The publisher had heard of
  // all removals up to `seen_removal`.
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
