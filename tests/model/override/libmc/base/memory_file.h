// SPDX-License-Identifier: Apache-2.0
//
// libmc/base/memory_file.h for the model: a file is a part of the modelled memory, and a mapping is
//   the same bytes. punch() is one step that every thread sees at once.
// Threads: those of tests/model/machine.h.
#pragma once

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
  explicit MemoryFile(std::byte* base, std::uint64_t bytes) : base_(base), size_bytes_(bytes) {}
  static Result<MemoryFile> create(const std::string&, std::uint64_t max_bytes,
                                   HugePages = HugePages::kOff) {
    MemoryFile file(model::arena_allocate(max_bytes), max_bytes);
    newest() = file;
    return file;
  }
  // Descriptors have no meaning here: a mapping belongs to the newest file.
  static MemoryFile& newest() {
    static MemoryFile file;
    return file;
  }
  int fd() const { return -1; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::byte* base() const { return base_; }
  Status reserve(std::uint64_t, std::uint64_t) const { return {}; }
  Status punch(std::uint64_t offset, std::uint64_t bytes, MC_MODEL_SITE) const {
    model::punch(base_ + offset, bytes, site);
    return {};
  }
  std::uint64_t resident_bytes() const { return 0; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

class Mapping {
 public:
  enum class Access { kRead, kReadWrite };
  static Result<Mapping> map(int, std::uint64_t bytes, Access) {
    Mapping mapping;
    mapping.data_ = MemoryFile::newest().base();
    mapping.size_bytes_ = bytes;
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
