// SPDX-License-Identifier: Apache-2.0
//
// What it is: session memory that this client writes and the agent only reads. Staging serves mc_alloc()
//   and puts in isolated namespaces.
// Threads: any thread.
// Owns: the mapping.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "libmc/base/memory_file.h"

namespace mc::client {

class Staging {
 public:
  explicit Staging(Mapping mapping);

  // Returns a 64-byte-aligned range. Waits until the deadline for other ranges to be freed.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t deadline_ns);
  void free(std::uint64_t offset);  // unknown offsets are ignored
  std::byte* at(std::uint64_t offset) const { return mapping_.data() + offset; }
  // The offset of [memory, memory + bytes) if the range lies in this staging.
  std::optional<std::uint64_t> offset_of(const void* memory, std::uint64_t bytes) const;
  std::uint64_t size_bytes() const { return mapping_.size_bytes(); }

 private:
  std::optional<std::uint64_t> take(std::uint64_t bytes);

  Mapping mapping_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes
  std::map<std::uint64_t, std::uint64_t> used_;
};

}  // namespace mc::client
