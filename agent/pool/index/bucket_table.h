// SPDX-License-Identifier: Apache-2.0
//
// The writer of the index's hash tables, with six slots in a bucket and linear probing
//   over buckets. Each bucket counts the entries that passed it, so that deletion leaves no
//   tombstones. A full table is replaced by a table three tenths larger: the new table is built
//   beside the old one, a little with every insertion, and becomes current by one atomic store.
// Threads: the agent's loop. Readers in other processes read meanwhile (shm/index_reader.h).
// Owns: the two table regions of the index file.
// Trusts: nothing in the file; tables are rebuilt from the entries at every start.
#pragma once

#include <cstdint>

#include "libmc/base/memory_file.h"
#include "shm/index_reader.h"
#include "shm/layout.h"

namespace mc::agent {

class BucketTable {
 public:
  // REQUIRES: header describes file, mapped at base.
  BucketTable(std::byte* base, const MemoryFile* file);

  // Starts an empty table for this many objects. Readers keep the previous table until
  // publish_reset(). Meanwhile insert() returns false where only a larger table would help.
  Status reset(std::uint64_t expected_count);
  void publish_reset();

  // Makes room for one entry more. False if memory is short or the table has its largest size;
  // insert() may then fail.
  bool prepare_insert();
  // Returns false if no slot is within reach.
  bool insert(std::uint64_t hash, std::uint32_t entry);
  void erase(std::uint64_t hash, std::uint32_t entry);
  // Readers see either the old or the new entry, never neither.
  void replace(std::uint64_t hash, std::uint32_t old_entry, std::uint32_t new_entry);

  // Calls use(entry) for each entry with a matching tag until `use` returns true.
  template <typename Use>
  bool for_candidates(std::uint64_t hash, Use use) const;

  // Prefetches the first bucket of a hash.
  void prefetch(std::uint64_t hash) const {
    const Table& table = tables_[current_];
    __builtin_prefetch(table.buckets + shm::home_bucket(hash, table.bucket_count));
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t reserved_bytes() const {
    return tables_[0].reserved_bytes + tables_[1].reserved_bytes;
  }

 private:
  struct Table {
    shm::Bucket* buckets = nullptr;
    std::uint64_t bucket_count = 0;
    std::uint64_t reserved_bytes = 0;
  };
  bool insert_into(Table& table, std::uint64_t hash, std::uint32_t entry);
  std::uint32_t hint_of(std::uint32_t entry) const;
  static void erase_from(Table& table, std::uint64_t hash, std::uint32_t entry);
  struct BucketSlot {
    shm::Bucket* bucket = nullptr;  // null: none
    std::size_t slot = 0;
    void set(std::uint64_t hash, std::uint32_t entry, std::uint32_t hint) const;
  };
  static BucketSlot find_slot(const Table& table, std::uint64_t hash, std::uint32_t entry);

  bool start_growth(std::uint64_t bucket_count);
  bool growth_step();
  bool finish_growth();
  void publish();
  bool in_next(std::uint32_t entry) const { return growing_ && entry < cursor_; }

  shm::IndexHeader* header_;
  shm::Entry* entries_;
  const MemoryFile* file_;
  std::byte* base_;
  Table tables_[2];
  unsigned current_ = 0;
  std::uint64_t count_ = 0;
  bool reset_ = false;  // the header does not name the current table yet
  bool growing_ = false;
  std::uint64_t cursor_ = 0;  // entries below this number are in the next table too
  std::uint64_t next_bytes_ = 0;
};

template <typename Use>
bool BucketTable::for_candidates(std::uint64_t hash, Use use) const {
  const Table& table = tables_[current_];
  if (table.bucket_count == 0) return false;
  std::uint64_t at = shm::home_bucket(hash, table.bucket_count);
  for (std::uint64_t probes = 0; probes < shm::kMaxProbes; ++probes) {
    const shm::Bucket& bucket = table.buckets[at];
    for (const shm::Word64& slot : bucket.slots) {
      const std::uint64_t value = slot.load_relaxed();
      if (shm::slot_is_of(value, hash) && use(shm::slot_entry(value))) return true;
    }
    if (bucket.passed.load_relaxed() == 0) return false;
    at = at + 1 == table.bucket_count ? 0 : at + 1;
  }
  return false;
}

}  // namespace mc::agent
