// SPDX-License-Identifier: Apache-2.0
//
// Nameless files of shared memory (memfd), and mappings of memory files. A seal keeps each file from
//   getting smaller: no process can truncate the file under another process that maps it. reserve()
//   takes memory page by page, so that a later access never raises SIGBUS. The mode is 0600: another
//   user cannot reopen a read-only descriptor for writing through /proc.
//
//   create()          one file of a fixed size, sparse
//   create_growing()  one file for each part of a range. A file ends where memory was reserved, so a
//                     reader beyond that end gets SIGBUS and not a new page:
//
//                       part 0 ████████░░░░░░░░  part 1 ████░░░░░░░░  part 2 ██░░░░      offsets ──►
//
// Threads: any thread may call reserve() and punch(). All other members are set once.
// Owns: MemoryFile owns the descriptor; Mapping owns the address range, not the descriptor.
// Trusts: adopt() and map() check seals and size before they use a descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc {

inline constexpr std::uint64_t kHugePageBytes = 2u << 20;

enum class HugePages { kOff, kTry, kRequire };

// A descriptor of a part, and the part's largest size.
struct MappablePart {
  int fd;
  std::uint64_t bytes;
};

class MemoryFile {
 public:
  MemoryFile() = default;
  // Rounds max_bytes up to whole pages. Errors: MC_NO_MEMORY.
  static Result<MemoryFile> create(const std::string& name, std::uint64_t max_bytes);
  // Takes over a descriptor that create() made in an earlier process. Errors: MC_CORRUPT if the
  // descriptor is not a sealed memory file.
  static Result<MemoryFile> adopt(Fd fd);
  // part_bytes: the largest size of each part, a multiple of the page size. /proc shows the parts as
  // name0, name1 and so on.
  static Result<MemoryFile> create_growing(const std::string& name,
                                           std::span<const std::uint64_t> part_bytes,
                                           HugePages huge = HugePages::kOff);
  // Takes over the descriptors that create_growing() made in an earlier process, in that order.
  static Result<MemoryFile> adopt_growing(std::vector<Fd> fds,
                                          std::span<const std::uint64_t> part_bytes);

  // Of the only file.
  int fd() const { return parts_.front().fd.get(); }
  std::size_t part_count() const { return parts_.size(); }
  int part_fd(std::size_t part) const { return parts_[part].fd.get(); }
  // Of all parts together.
  std::uint64_t size_bytes() const { return size_bytes_; }
  bool huge() const { return huge_; }
  explicit operator bool() const { return !parts_.empty(); }

  // Takes memory for [offset, offset + bytes). Errors: MC_TOO_LARGE beyond the end of the file;
  // MC_NO_MEMORY with the remedy. Memory that was reserved before stays reserved.
  Status reserve(std::uint64_t offset, std::uint64_t bytes) const;
  // Returns the pages of the range to the system; the range then reads as zeros.
  Status punch(std::uint64_t offset, std::uint64_t bytes) const;
  std::vector<MappablePart> mappable_parts() const;
  // The same file with descriptors of its own.
  Result<MemoryFile> duplicate() const;
  // Opens a second, read-only descriptor of each part.
  Result<std::vector<Fd>> read_only() const;
  // Bytes that the system has allocated to the file, and to one part.
  std::uint64_t resident_bytes() const;
  std::uint64_t resident_bytes(std::size_t part) const;

 private:
  struct Part {
    Fd fd;
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  // Calls use(fd, offset in the part, bytes) for each part of the range, until an error.
  template <typename Use>
  Status for_each_part(std::uint64_t offset, std::uint64_t bytes, Use use) const;

  std::vector<Part> parts_;
  std::uint64_t size_bytes_ = 0;
  bool huge_ = false;
};

// A shared mapping of a memory file.
class Mapping {
 public:
  enum class Access { kRead, kReadWrite };
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Maps the first `bytes` bytes of fd. A mapping of 2 MiB or more begins at a multiple of 2 MiB,
  // so that the kernel can map huge pages. Errors: MC_CORRUPT if the file is shorter; MC_NO_MEMORY.
  static Result<Mapping> map(int fd, std::uint64_t bytes, Access access);
  // Maps the parts of a growing file one after the other, at their largest sizes. Memory that is
  // reserved later appears in the mapping.
  static Result<Mapping> map_parts(std::span<const MappablePart> parts, Access access);
  static Result<Mapping> map_all(const MemoryFile& file, Access access);

  std::byte* data() const { return data_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  // Excludes the mapping from forked children, which must not use the mapping.
  void forget_in_children() const;
  // Lets go of the file: the same addresses then hold private zeros. Threads that still use the
  // addresses read zeros, and their writes are lost. Returns false if the kernel refuses.
  bool let_go() const;
  // Moves the memory of the range into pages of 2 MiB: one translation and one page fault per 2 MiB
  // in every process that maps the file. Takes about 1 ms a page. REQUIRES: the range is reserved.
  // kNotNow: a page was busy. kNever: the kernel (before 6.1) or its configuration cannot.
  enum class Collapse { kDone, kNotNow, kNever };
  Collapse collapse(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  bool writable_ = false;
};

// Memory that this process can still take: MemAvailable of the host, or the rest below the memory
// limit of this process' cgroup if that rest is smaller.
std::uint64_t available_memory_bytes();
// Free huge pages of 2 MiB that the system has set aside (vm.nr_hugepages), in bytes.
std::uint64_t free_huge_page_bytes();

}  // namespace mc
