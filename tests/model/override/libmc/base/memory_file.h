// SPDX-License-Identifier: Apache-2.0
//
// libmc/base/memory_file.h for the model: a file is a part of the modelled memory, and a mapping is
//   the same bytes. punch() is one step that every thread sees at once.
// Threads: those of tests/model/machine.h.
#pragma once

#include <numeric>

// The product's header for all declarations except the two classes.
#define MemoryFile ProductMemoryFile
#define Mapping ProductMapping
#include_next "libmc/base/memory_file.h"
#undef MemoryFile
#undef Mapping

#include "tests/model/arena.h"
#include "tests/model/hooks.h"

namespace mc {
inline namespace model_checked {

class MemoryFile {
 public:
  MemoryFile() = default;
  MemoryFile(std::byte* base, std::uint64_t bytes, std::size_t parts = 1)
      : base_(base), size_bytes_(bytes), part_count_(parts) {}
  static Result<MemoryFile> create_growing(const std::string&,
                                           std::span<const std::uint64_t> part_bytes,
                                           HugePages = HugePages::kOff) {
    const std::uint64_t bytes =
        std::accumulate(part_bytes.begin(), part_bytes.end(), std::uint64_t{0});
    return MemoryFile(model::arena_allocate(bytes), bytes, part_bytes.size());
  }
  std::size_t part_count() const { return part_count_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::byte* base() const { return base_; }
  Status reserve(std::uint64_t, std::uint64_t) const { return {}; }
  Status punch(std::uint64_t offset, std::uint64_t bytes, MC_MODEL_SITE) const {
    model::punch(base_ + offset, bytes, site);
    return {};
  }
  std::uint64_t resident_bytes() const { return 0; }
  std::uint64_t resident_bytes(std::size_t) const { return 0; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::size_t part_count_ = 0;
};

class Mapping {
 public:
  enum class Access { kRead, kReadWrite };
  static Result<Mapping> map_all(const MemoryFile& file, Access) {
    Mapping mapping;
    mapping.data_ = file.base();
    mapping.size_bytes_ = file.size_bytes();
    return mapping;
  }
  std::byte* data() const { return data_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace model_checked
}  // namespace mc
