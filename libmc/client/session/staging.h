// SPDX-License-Identifier: Apache-2.0
//
// What it is: session memory that this client writes and the agent only reads: for mc_alloc(), and
// for
//   puts in an isolated namespace.
// Threads: any. Owns: the mapping.
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

  // A 64-aligned range, waiting for others to come back until the deadline.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t deadline_ns);
  void free(std::uint64_t offset);  // an offset that was not given out is ignored
  std::byte* at(std::uint64_t offset) const { return mapping_.data() + offset; }
  // Where [memory, memory + bytes) lies in it, if it does.
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
