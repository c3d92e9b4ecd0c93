// SPDX-License-Identifier: Apache-2.0
//
// The index file of one namespace as its agent sees the file: the entries (ledger of
//   all reservations and objects), the hash table over the entries, and the heap of keys.
// Threads: the agent's loop.
// Owns: the file, the mapping and the lists of free entries and records.
// Trusts: nothing in a file that adopt() takes over; see recovery.h.
#pragma once

#include <bit>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "agent/pool/index/bucket_table.h"
#include "agent/pool/index/key_heap.h"
#include "agent/pool/index/optional_id.h"
#include "libmc/base/memory_file.h"
#include "shm/index_reader.h"
#include "shm/layout.h"

namespace mc::agent {

inline shm::KeyField key_field(const shm::Entry& entry) {
  return std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
}
inline shm::AttributeField attribute_field(const shm::Entry& entry) {
  return std::bit_cast<shm::AttributeField>(entry.attributes.load_relaxed());
}
inline shm::EntryState state_of(const shm::Entry& entry) {
  return shm::state_of(entry.version.load_relaxed());
}

class ObjectIndex {
 public:
  // For at most max_objects objects. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<ObjectIndex>> create(std::uint64_t max_objects,
                                                     std::uint64_t node_id,
                                                     std::uint64_t incarnation);
  // Takes over the file of an earlier agent, with the parts of part_bytes(). The header is checked,
  // entries and keys are not; the table is empty.
  static Result<std::unique_ptr<ObjectIndex>> adopt(MemoryFile file);
  // The largest sizes of the parts of an index file with this header.
  static std::vector<std::uint64_t> part_bytes(const shm::IndexHeader& header);

  shm::IndexHeader& header() { return *header_; }
  const MemoryFile& file() const { return file_; }
  shm::Entry& entry(std::uint32_t id) { return entries_[id]; }
  // Changes the state of an entry and keeps the sequence, in a single store.
  void set_state(std::uint32_t id, shm::EntryState state) {
    shm::Word64& version = entries_[id].version;
    version.store_release(shm::make_version(shm::sequence_of(version.load_relaxed()), state));
  }
  std::uint64_t entry_count() const { return header_->entry_count.load_relaxed(); }
  BucketTable& table() { return *table_; }
  KeyHeap& keys() { return *keys_; }

  // Returns a free entry, or nullopt if memory is short.
  OptionalId acquire_entry();
  void release_entry(std::uint32_t id);  // REQUIRES: state kFree

  std::uint64_t hash(std::string_view key) const;
  OptionalId find(std::string_view key, std::uint64_t hash) const;
  OptionalId find_by_hash(std::uint64_t hash) const;

  // Writes the key of an entry that no reader can see yet. Returns the key's record, 0 for a short
  // key, or nullopt if memory is short.
  OptionalId store_key(std::uint32_t id, std::string_view key);
  // Frees the record of the key, if there is one.
  void free_key(shm::KeyField field);
  // Recovery: false if the key's record does not exist or belongs to another key.
  bool claim_key(shm::KeyField field);
  OptionalId store_extents(std::span<const shm::ExtentRecord> extents);
  std::string_view key_of(std::uint32_t id) const;
  // Extents as reserved, in whole granules. Empty if the entry names memory outside the heap.
  using Extents = boost::container::static_vector<shm::ExtentRecord, MC_MAX_EXTENTS>;
  Extents extents_of(std::uint32_t id) const;

  // Returns a part of the file that has become large enough for huge pages; each part once.
  struct Range {
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
  };
  std::optional<Range> next_huge_range();
  const Mapping& mapping() const { return mapping_; }

  std::uint64_t next_sequence();
  // All memory of the index, private memory included.
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
  std::uint64_t huge_generation_ = 0;  // the table's generation for huge_table_bytes_
};

}  // namespace mc::agent
