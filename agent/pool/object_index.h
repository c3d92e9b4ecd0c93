// SPDX-License-Identifier: Apache-2.0
//
// What it is: the index file of one namespace as its agent sees it: the entries (ledger of all
//   reservations and objects), the hash table over them, and the heap of keys.
// Threads: the agent's loop. Owns: the file, its mapping, what is free in it.
// Trusts: adopt() trusts nothing in a file that an earlier agent left; see recovery.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "agent/pool/bucket_table.h"
#include "agent/pool/key_heap.h"
#include "agent/pool/optional_id.h"
#include "libmc/base/memory_file.h"
#include "shm/index_reader.h"
#include "shm/layout.h"

namespace mc::agent {

class ObjectIndex {
 public:
  // For at most max_objects objects. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<ObjectIndex>> create(std::uint64_t max_objects,
                                                     std::uint64_t node_id,
                                                     std::uint64_t incarnation);
  // The file of an earlier agent: header checked, entries and keys not yet; the table is empty.
  static Result<std::unique_ptr<ObjectIndex>> adopt(MemoryFile file);

  shm::IndexHeader& header() { return *header_; }
  const MemoryFile& file() const { return file_; }
  shm::Entry& entry(std::uint32_t id) { return entries_[id]; }
  std::uint64_t entry_count() const { return header_->entry_count.load_relaxed(); }
  BucketTable& table() { return *table_; }
  KeyHeap& keys() { return *keys_; }

  // A free entry, or nullopt when there is no memory for more.
  OptionalId acquire_entry();
  void release_entry(std::uint32_t id);  // REQUIRES: state kFree

  std::uint64_t hash(std::string_view key) const;
  OptionalId find(std::string_view key, std::uint64_t hash) const;
  OptionalId find_by_hash(std::uint64_t hash) const;

  // Writes the key of an entry that nobody can see yet. Its record, 0 for a short one, or nullopt
  // when there is no memory for it.
  OptionalId store_key(std::uint32_t id, std::string_view key);
  // The key's record, if it has one, goes back.
  void free_key(shm::KeyField field);
  // Recovery: false when the key's record is none, or another's.
  bool claim_key(shm::KeyField field);
  OptionalId store_extents(std::span<const shm::ExtentRecord> extents);
  std::string_view key_of(std::uint32_t id) const;
  // Extents as reserved: whole granules. Empty when the entry names memory outside the heap.
  std::vector<shm::ExtentRecord> extents_of(std::uint32_t id) const;

  // A part of the file that has become large enough to be moved into huge pages, once each.
  struct Range {
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
  };
  std::optional<Range> next_huge_range();
  const Mapping& mapping() const { return mapping_; }

  std::uint64_t next_sequence();
  // Memory taken for all of it, private part included.
  std::uint64_t memory_bytes() const;

 private:
  ObjectIndex() = default;
  void attach();

  MemoryFile file_;
  Mapping mapping_;
  shm::IndexHeader* header_ = nullptr;
  shm::Entry* entries_ = nullptr;
  std::byte* key_bytes_ = nullptr;
  std::unique_ptr<BucketTable> table_;
  std::unique_ptr<KeyHeap> keys_;
  std::vector<std::uint32_t> free_entries_;
  std::uint64_t entries_reserved_ = 0;
  std::uint64_t huge_entry_bytes_ = 0;  // handed out by next_huge_range()
  std::uint64_t huge_key_bytes_ = 0;
  std::uint64_t huge_table_bytes_ = 0;
  std::uint64_t huge_generation_ = 0;  // of the table that huge_table_bytes_ is about
};

}  // namespace mc::agent
