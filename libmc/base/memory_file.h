// SPDX-License-Identifier: Apache-2.0
//
// What it is: a nameless file of shared memory (memfd) and a mapping of one.
//   The file is created at its largest size, sparse, and sealed against growing and shrinking:
//   nobody can truncate it under a process that maps it. Memory is taken by reserve(), page by
//   page, so that touching it later never raises SIGBUS. Its mode is 0600: a reader's descriptor
//   cannot be reopened for writing through /proc by another user.
// Threads: reserve() and punch() from any thread; the rest is set once.
// Trusts: open_checked() believes nothing about a descriptor before it looked at seals and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc {

enum class HugePages { kOff, kTry, kRequire };

class MemoryFile {
 public:
  MemoryFile() = default;
  // max_bytes is rounded up to whole pages. Errors: MC_NO_MEMORY.
  static Result<MemoryFile> create(const std::string& name, std::uint64_t max_bytes,
                                   HugePages huge = HugePages::kOff);
  // Takes over a descriptor that create() made in an earlier process. Errors: MC_CORRUPT when it is
  // not a sealed memory file.
  static Result<MemoryFile> adopt(Fd fd);

  int fd() const { return fd_.get(); }
  std::uint64_t size_bytes() const { return size_bytes_; }
  bool huge() const { return huge_; }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Takes memory for [offset, offset + bytes). Errors: MC_NO_MEMORY with the remedy; nothing is
  // lost.
  Status reserve(std::uint64_t offset, std::uint64_t bytes) const;
  // Gives the pages of the range back to the system; they read as zeros afterwards.
  Status punch(std::uint64_t offset, std::uint64_t bytes) const;
  // A second descriptor that can only read.
  Result<Fd> read_only() const;
  // Bytes really taken from the system.
  std::uint64_t resident_bytes() const;

 private:
  Fd fd_;
  std::uint64_t size_bytes_ = 0;
  bool huge_ = false;
};

class Mapping {
 public:
  enum class Access { kRead, kReadWrite };
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // Maps the first bytes of fd, large ones at a multiple of 2 MiB. Errors: MC_CORRUPT if the file
  // is shorter, MC_NO_MEMORY.
  static Result<Mapping> map(int fd, std::uint64_t bytes, Access access);

  std::byte* data() const { return data_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  // Keeps the mapping out of a forked child, where nothing may use it.
  void forget_in_children() const;
  // Moves the memory of the range, which must be reserved, into pages of 2 MiB: one translation and
  // one fault for all of them, in every process that maps the file. Takes about 1 ms a page. False:
  // this kernel (before 6.1) or its configuration cannot.
  enum class Collapse { kDone, kNotNow, kNever };
  Collapse collapse(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void swap(Mapping& other) {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

// MemAvailable of this host, or what is left below the memory limit of this process' cgroup when
// that is less.
std::uint64_t available_memory_bytes();
// Free huge pages of 2 MiB that the system has set aside (vm.nr_hugepages), in bytes.
std::uint64_t free_huge_page_bytes();
inline constexpr std::uint64_t kHugePageBytes = 2u << 20;

}  // namespace mc
