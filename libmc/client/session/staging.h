// SPDX-License-Identifier: Apache-2.0
//
// Session memory that this client writes and the agent only reads. Staging serves mc_alloc()
//   and puts in isolated namespaces.
// Threads: any thread.
// Owns: the mapping.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "libmc/base/memory_file.h"
#include "libmc/base/mutex.h"

namespace mc::client {

class Staging {
 public:
  explicit Staging(Mapping mapping);

  // Returns a 64-byte-aligned range. Waits until the deadline for other ranges to be freed.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t deadline_ns);
  void free(std::uint64_t offset);  // unknown offsets are ignored
  bool unused() const;
  std::byte* at(std::uint64_t offset) const { return mapping_.data() + offset; }
  // The offset of [memory, memory + bytes) if the range lies in this staging.
  std::optional<std::uint64_t> offset_of(const void* memory, std::uint64_t bytes) const;
  std::uint64_t size_bytes() const { return mapping_.size_bytes(); }

 private:
  std::optional<std::uint64_t> take(std::uint64_t bytes) MC_REQUIRES(mutex_);

  Mapping mapping_;
  mutable Mutex mutex_;
  Condition freed_;
  std::map<std::uint64_t, std::uint64_t> free_ MC_GUARDED_BY(mutex_);  // offset -> bytes
  std::map<std::uint64_t, std::uint64_t> used_ MC_GUARDED_BY(mutex_);
};

}  // namespace mc::client
