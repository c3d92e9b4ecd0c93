// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace mc {

namespace {

// F_SEAL_SEAL too: otherwise a client with a writable descriptor could add F_SEAL_FUTURE_WRITE, and
// neither new clients nor the next agent could map the file for writing.
constexpr int kGrowingSeals = F_SEAL_SHRINK | F_SEAL_SEAL;
constexpr int kFixedSeals = kGrowingSeals | F_SEAL_GROW;
constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Memory left in the innermost cgroup (v2) of this process, if it has a limit.
std::optional<std::uint64_t> cgroup_left_bytes() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string directory = "/sys/fs/cgroup" + line.substr(3);
    const auto limit = number_in(directory + "/memory.max");
    const auto used = number_in(directory + "/memory.current");
    if (limit && used) return *limit > *used ? *limit - *used : 0;
  }
  return std::nullopt;
}

// Beyond the process's limit of file sizes the kernel sends SIGXFSZ, which ends a process.
Status check_file_limit(const std::string& name, std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return {MC_NO_MEMORY, "memory file " + name + " needs " + std::to_string(bytes >> 20) +
                            " MiB, but files of this process have at most " +
                            std::to_string(limit.rlim_cur >> 20) +
                            " MiB; raise the limit: ulimit -f unlimited"};
}

Result<Fd> make_memfd(const std::string& name, bool huge) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u);
  Fd fd(::memfd_create(name.c_str(), flags));
  if (!fd) return fail(MC_NO_MEMORY, errno_text("create a memory file", errno));
  if (::fchmod(fd.get(), 0600) != 0) {
    return fail(MC_NO_MEMORY, errno_text("close memory file " + name + " to others", errno));
  }
  return fd;
}

bool has_seals(int fd, int seals) {
  const int found = ::fcntl(fd, F_GET_SEALS);
  return found >= 0 && (found & seals) == seals;
}

}  // namespace

Result<MemoryFile> MemoryFile::create(const std::string& name, std::uint64_t max_bytes) {
  MemoryFile file;
  file.size_bytes_ = round_up(max_bytes, kPageBytes);
  if (Status status = check_file_limit(name, file.size_bytes_); !status.ok()) return fail(status);
  auto fd = make_memfd(name, false);
  if (!fd) return fail(fd.error());
  if (::ftruncate(fd->get(), static_cast<off_t>(file.size_bytes_)) != 0 ||
      ::fcntl(fd->get(), F_ADD_SEALS, kFixedSeals) != 0) {
    return fail(MC_NO_MEMORY, errno_text("size and seal memory file " + name, errno));
  }
  file.parts_.push_back({std::move(*fd), 0, file.size_bytes_});
  return file;
}

Result<MemoryFile> MemoryFile::adopt(Fd fd) {
  struct stat status {};
  if (!has_seals(fd.get(), kFixedSeals) || ::fstat(fd.get(), &status) != 0) {
    return fail(MC_CORRUPT, "a kept descriptor is not a sealed memory file");
  }
  MemoryFile file;
  file.size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  file.parts_.push_back({std::move(fd), 0, file.size_bytes_});
  return file;
}

Result<MemoryFile> MemoryFile::create_growing(const std::string& name,
                                              std::span<const std::uint64_t> part_bytes,
                                              HugePages huge) {
  MemoryFile file;
  file.huge_ = huge != HugePages::kOff;
  for (const std::uint64_t bytes : part_bytes) {
    const std::string part_name = name + std::to_string(file.parts_.size());
    if (Status status = check_file_limit(part_name, bytes); !status.ok()) return fail(status);
    auto fd = make_memfd(part_name, file.huge_);
    if (!fd && huge == HugePages::kRequire) {
      return fail(MC_NO_MEMORY, std::string(fd.error().text()) +
                                    "; reserve huge pages with sysctl vm.nr_hugepages=N");
    }
    if (!fd && file.huge_ && file.parts_.empty()) {
      file.huge_ = false;
      fd = make_memfd(part_name, false);
    }
    if (!fd) return fail(fd.error());
    if (::fcntl(fd->get(), F_ADD_SEALS, kGrowingSeals) != 0) {
      return fail(MC_NO_MEMORY, errno_text("seal memory file " + part_name, errno));
    }
    file.parts_.push_back({std::move(*fd), file.size_bytes_, bytes});
    file.size_bytes_ += bytes;
  }
  return file;
}

Result<MemoryFile> MemoryFile::adopt_growing(std::vector<Fd> fds,
                                             std::span<const std::uint64_t> part_bytes) {
  MemoryFile file;
  if (fds.size() != part_bytes.size()) {
    return fail(MC_CORRUPT, "a part of a kept memory file is missing");
  }
  for (std::size_t i = 0; i < fds.size(); ++i) {
    struct stat status {};
    // A client that may write can make the file longer, to no effect.
    if (!has_seals(fds[i].get(), kGrowingSeals) || ::fstat(fds[i].get(), &status) != 0) {
      return fail(MC_CORRUPT, "a kept descriptor is not a part of a memory file");
    }
    file.huge_ = status.st_blksize == static_cast<blksize_t>(kHugePageBytes);
    file.parts_.push_back({std::move(fds[i]), file.size_bytes_, part_bytes[i]});
    file.size_bytes_ += part_bytes[i];
  }
  return file;
}

template <typename Use>
Status MemoryFile::for_each_part(std::uint64_t offset, std::uint64_t bytes, Use use) const {
  for (const Part& part : parts_) {
    if (bytes == 0) break;
    if (offset >= part.offset + part.bytes) continue;
    const std::uint64_t in_part = offset - part.offset;
    const std::uint64_t step = std::min(bytes, part.bytes - in_part);
    if (Status status = use(part.fd.get(), static_cast<off_t>(in_part), static_cast<off_t>(step));
        !status.ok()) {
      return status;
    }
    offset += step;
    bytes -= step;
  }
  return {};
}

Status MemoryFile::reserve(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > size_bytes_ || bytes > size_bytes_ - offset) {
    return {MC_TOO_LARGE, "a reservation beyond the end of the memory file"};
  }
  return for_each_part(offset, bytes, [&](int fd, off_t at, off_t length) -> Status {
    int error = 0;
    do {
      error = ::posix_fallocate(fd, at, length);  // moves the end of a growing file
    } while (error == EINTR);
    if (error == 0) return {};
    return {MC_NO_MEMORY, errno_text("reserve " + std::to_string(bytes) + " bytes of " +
                                         (huge_ ? "huge pages" : "memory"),
                                     error) +
                              (huge_ ? "; raise vm.nr_hugepages or set huge_pages = \"off\""
                                     : "; lower pool_bytes or raise the memory limit")};
  });
}

Status MemoryFile::punch(std::uint64_t offset, std::uint64_t bytes) const {
  return for_each_part(offset, bytes, [](int fd, off_t at, off_t length) -> Status {
    if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) == 0) return {};
    return {MC_INTERNAL, errno_text("return pages to the system", errno)};
  });
}

std::vector<MappablePart> MemoryFile::mappable_parts() const {
  std::vector<MappablePart> parts;
  for (const Part& part : parts_) parts.push_back({part.fd.get(), part.bytes});
  return parts;
}

Result<MemoryFile> MemoryFile::duplicate() const {
  MemoryFile copy;
  for (const Part& part : parts_) {
    Fd fd(::fcntl(part.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!fd) return fail(MC_NO_MEMORY, errno_text("duplicate the descriptor of a file", errno));
    copy.parts_.push_back({std::move(fd), part.offset, part.bytes});
  }
  copy.size_bytes_ = size_bytes_;
  copy.huge_ = huge_;
  return copy;
}

Result<std::vector<Fd>> MemoryFile::read_only() const {
  std::vector<Fd> fds;
  for (const Part& part : parts_) {
    const std::string path = "/proc/self/fd/" + std::to_string(part.fd.get());
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail(MC_NO_MEMORY, errno_text("reopen a memory file for reading", errno));
    fds.push_back(std::move(fd));
  }
  return fds;
}

std::uint64_t MemoryFile::resident_bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t part = 0; part < parts_.size(); ++part) sum += resident_bytes(part);
  return sum;
}

std::uint64_t MemoryFile::resident_bytes(std::size_t part) const {
  struct stat status {};
  if (::fstat(parts_[part].fd.get(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512u;
}

namespace {

// A range of addresses without memory, from a multiple of 2 MiB if the range is that large. Nothing can
// be read there, so that even mlockall(MCL_FUTURE) makes no page. Null: no addresses are left.
std::byte* reserve_addresses(std::uint64_t bytes) {
  const std::uint64_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  void* const found =
      ::mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(found);
  const std::uintptr_t aligned = slack == 0 ? begin : round_up(begin, kHugePageBytes);
  const std::uintptr_t end = aligned + round_up(bytes, kPageBytes);
  if (aligned > begin) ::munmap(found, aligned - begin);
  if (end < begin + bytes + slack) {
    ::munmap(reinterpret_cast<void*>(end), begin + bytes + slack - end);
  }
  return reinterpret_cast<std::byte*>(aligned);
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}
Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      writable_(other.writable_) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(writable_, other.writable_);
  return *this;
}

Result<Mapping> Mapping::map(int fd, std::uint64_t bytes, Access access) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    return fail(MC_CORRUPT, "a memory file is shorter than its layout says");
  }
  const MappablePart whole{fd, bytes};
  return map_parts({&whole, 1}, access);
}

Result<Mapping> Mapping::map_all(const MemoryFile& file, Access access) {
  return map_parts(file.mappable_parts(), access);
}

Result<Mapping> Mapping::map_parts(std::span<const MappablePart> parts, Access access) {
  Mapping mapping;
  for (const MappablePart& part : parts) {
    if (part.bytes > ~std::uint64_t{0} / 2 - mapping.size_bytes_) {
      return fail(MC_CORRUPT, "a memory file is larger than all addresses");
    }
    mapping.size_bytes_ += part.bytes;
  }
  if (mapping.size_bytes_ == 0) return fail(MC_NO_MEMORY, "cannot map 0 bytes");
  mapping.data_ = reserve_addresses(mapping.size_bytes_);
  mapping.writable_ = access == Access::kReadWrite;
  std::byte* at = mapping.data_;
  for (const MappablePart& part : parts) {
    const int protection = PROT_READ | (mapping.writable_ ? PROT_WRITE : 0);
    if (at == nullptr || ::mmap(at, part.bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                                part.fd, 0) == MAP_FAILED) {
      return fail(MC_NO_MEMORY,
                  errno_text("map " + std::to_string(mapping.size_bytes_) + " bytes", errno));
    }
    at += part.bytes;
  }
  return mapping;
}

void Mapping::forget_in_children() const {
  if (data_ != nullptr) ::madvise(data_, size_bytes_, MADV_DONTFORK);
}

// The zeros are made elsewhere and then moved here in one step of the kernel: a thread that still uses the
// addresses meets the file or zeros, never a gap. Without munlock() a process that locks its memory would
// take a page for each page of zeros.
bool Mapping::let_go() const {
  if (data_ == nullptr) return true;
  void* const zeros =
      ::mmap(nullptr, size_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) return false;
  ::munlock(zeros, size_bytes_);
  const int protection = PROT_READ | (writable_ ? PROT_WRITE : 0);
  if (::mprotect(zeros, size_bytes_, protection) == 0 &&
      ::mremap(zeros, size_bytes_, size_bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == data_) {
    return true;
  }
  ::munmap(zeros, size_bytes_);
  return false;
}

Mapping::Collapse Mapping::collapse(std::uint64_t offset, std::uint64_t bytes) const {
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // Linux 6.1, newer than Debian 12's libc headers
#endif
  constexpr int kTries = 3;  // a page may be busy for a moment
  for (int tries = 0; tries < kTries; ++tries) {
    if (::madvise(data_ + offset, bytes, MADV_COLLAPSE) == 0) return Collapse::kDone;
    if (errno != EAGAIN && errno != EBUSY && errno != EINTR) return Collapse::kNever;
  }
  return Collapse::kNotNow;
}

std::uint64_t free_huge_page_bytes() {
  return number_in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").value_or(0) *
         kHugePageBytes;
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = ~std::uint64_t{0};
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("MemAvailable:", 0) != 0) continue;
    std::istringstream words(line.substr(13));
    std::uint64_t kilobytes = 0;
    if (words >> kilobytes) available = kilobytes * 1024u;
  }
  if (const auto left = cgroup_left_bytes()) available = std::min(available, *left);
  return available;
}

}  // namespace mc
