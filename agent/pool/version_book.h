// SPDX-License-Identifier: Apache-2.0
//
// What it is: what a cluster knows an object by, for each entry of a pool: its version, which is
// the
//   same at every holder. A memory file beside the index, so that an agent that was killed comes
//   back with what it holds under the versions it held it under.
//
//   row   0        8         9         10     11            12      13      16
//         │ version│ replicas│ unannounced  │ parts│ stripes here│ part  │ 0 … 0 │
//
//   Of a stripe: in how many parts its object is, which of them it belongs to (1: the first), and
//   how many stripes of that are here.
//
//   A row is written before its entry becomes live, and means nothing while that is not.
// Threads: the agent's loop. Owns: the file. Trusts: rows of an earlier agent as numbers only: a
//   wrong one is a version that the master refuses.
#pragma once

#include <cstdint>
#include <memory>

#include "libmc/base/memory_file.h"

namespace mc::agent {

class VersionBook {
 public:
  // A put of which no master has said that it took it. No removal can have meant it.
  // kStripe: of a put that is not complete, and never will be if this agent ends.
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

  // kept: a file of an earlier agent, or none. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<VersionBook>> open(MemoryFile kept, std::uint64_t max_entries);

  // False: no memory for the row.
  bool write(std::uint32_t entry, Row row);
  Row row(std::uint32_t entry) const;  // of zeros where none was written
  const MemoryFile& file() const { return file_; }

 private:
  VersionBook() = default;
  Row* rows() const { return reinterpret_cast<Row*>(mapping_.data()); }

  MemoryFile file_;
  Mapping mapping_;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace mc::agent
