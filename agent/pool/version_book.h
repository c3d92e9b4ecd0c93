// SPDX-License-Identifier: Apache-2.0
//
// The cluster's facts about each entry of a pool: the object's version, which is equal
//   at every holder, and its replicas and stripes. The book is a memory file beside the index.
//   After a kill, the next agent comes back with its objects under the same versions.
//
//   row   0        8         9         10     11            12      13      16
//         │ version│ replicas│ unannounced  │ parts│ stripes here│ part  │ 0 … 0 │
//
//   parts: parts of a striped object. part: the part of this stripe (1: the first).
//   stripes here: stripes of that part on this host.
//
//   A row is written before its entry becomes live, and is void while the entry is not live.
// Threads: the agent's loop.
// Owns: the file.
// Trusts: rows of an earlier agent as numbers only; the master refuses a wrong version.
#pragma once

#include <cstdint>
#include <memory>

#include "libmc/base/memory_file.h"

namespace mc::agent {

class VersionBook {
 public:
  // State of a put that no master has acknowledged; no removal can have meant such a put. kStripe:
  // a stripe of an incomplete put, which stays incomplete if this agent ends.
  enum class Unannounced : std::uint8_t { kNo = 0, kPut = 1, kUpsert = 2, kStripe = 3 };
  struct Row {
    std::uint64_t version = 0;
    std::uint8_t replicas = 1;
    Unannounced unannounced = Unannounced::kNo;
    std::uint8_t parts = 0;
    std::uint8_t stripes_here = 0;
    std::uint8_t part = 0;
    std::uint8_t reserved[3] = {};
  };
  static_assert(sizeof(Row) == 16);

  // The largest size of the file.
  static std::uint64_t file_bytes(std::uint64_t max_entries);
  // kept: a file of an earlier agent for as many entries, or an empty file. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<VersionBook>> open(MemoryFile kept, std::uint64_t max_entries);

  // Returns false if memory for the row is short.
  bool write(std::uint32_t entry, Row row);
  Row row(std::uint32_t entry) const;  // zeros for a row that was never written
  const MemoryFile& file() const { return file_; }

 private:
  VersionBook() = default;
  Row* rows() const { return reinterpret_cast<Row*>(mapping_.data()); }

  MemoryFile file_;
  Mapping mapping_;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace mc::agent
