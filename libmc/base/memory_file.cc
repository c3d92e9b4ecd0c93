// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/detail/os_file_functions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace mc {

namespace {

// F_SEAL_SEAL too: otherwise a client with a writable descriptor could add F_SEAL_FUTURE_WRITE, and
// neither new clients nor the next agent could map the file for writing.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

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

}  // namespace

Result<MemoryFile> MemoryFile::create(const std::string& name, std::uint64_t max_bytes,
                                      HugePages huge) {
  MemoryFile file;
  if (huge != HugePages::kOff) {
    file.fd_.reset(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    file.huge_ = static_cast<bool>(file.fd_);
    if (!file.fd_ && huge == HugePages::kRequire) {
      return fail(MC_NO_MEMORY, errno_text("create a memory file of huge pages", errno) +
                                    "; reserve some with sysctl vm.nr_hugepages=N");
    }
  }
  if (!file.fd_) file.fd_.reset(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.fd_) return fail(MC_NO_MEMORY, errno_text("create a memory file", errno));
  file.size_bytes_ = round_up(max_bytes, file.huge_ ? kHugePageBytes : 4096);
  if (Status status = check_file_limit(name, file.size_bytes_); !status.ok()) return fail(status);
  if (::fchmod(file.fd_.get(), 0600) != 0 ||
      ::ftruncate(file.fd_.get(), static_cast<off_t>(file.size_bytes_)) != 0 ||
      ::fcntl(file.fd_.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return fail(MC_NO_MEMORY, errno_text("size and seal memory file " + name, errno));
  }
  return file;
}

Result<MemoryFile> MemoryFile::adopt(Fd fd) {
  struct stat status {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(fd.get(), &status) != 0) {
    return fail(MC_CORRUPT, "a kept descriptor is not a sealed memory file");
  }
  MemoryFile file;
  file.fd_ = std::move(fd);
  file.size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  file.huge_ = status.st_blksize == static_cast<blksize_t>(kHugePageBytes);
  return file;
}

Status MemoryFile::reserve(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0) return {};
  if (offset > size_bytes_ || bytes > size_bytes_ - offset) {
    return {MC_TOO_LARGE, "a reservation beyond the end of the memory file"};
  }
  int error = 0;
  do {
    error = ::posix_fallocate(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    return {MC_NO_MEMORY, errno_text("reserve " + std::to_string(bytes) + " bytes of " +
                                         (huge_ ? "huge pages" : "memory"),
                                     error) +
                              (huge_ ? "; raise vm.nr_hugepages or set huge_pages = \"off\""
                                     : "; lower pool_bytes or raise the memory limit")};
  }
  return {};
}

Status MemoryFile::punch(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0) return {};
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0) {
    return {MC_INTERNAL, errno_text("return pages to the system", errno)};
  }
  return {};
}

Result<Fd> MemoryFile::read_only() const {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(MC_NO_MEMORY, errno_text("reopen a memory file for reading", errno));
  return fd;
}

std::uint64_t MemoryFile::resident_bytes() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512u;
}

namespace {

namespace ipc = boost::interprocess;

// The MemoryMappable (Boost.Interprocess' concept) of a descriptor that the caller owns.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd_);
  }

 private:
  int fd_;
};

// An address where `bytes` bytes were free a moment ago: a multiple of 2 MiB.
const void* find_aligned_gap(const Descriptor& file, std::uint64_t bytes) {
  const ipc::mapped_region probe(file, ipc::read_only, 0, bytes + kHugePageBytes, nullptr,
                                 MAP_NORESERVE);
  const auto base = reinterpret_cast<std::uintptr_t>(probe.get_address());
  return reinterpret_cast<const void*>(round_up(base, kHugePageBytes));
}

ipc::mapped_region map_file(const Descriptor& file, std::uint64_t bytes, ipc::mode_t mode) {
  constexpr int kTries = 8;  // another thread may take the gap first
  for (int tries = 0; bytes >= kHugePageBytes && tries < kTries; ++tries) {
    try {
      return {file,
              mode,
              0,
              bytes,
              find_aligned_gap(file, round_up(bytes, kHugePageBytes)),
              MAP_NORESERVE | MAP_FIXED_NOREPLACE};
    } catch (const ipc::interprocess_exception& error) {
      if (error.get_native_error() != EEXIST) throw;
    }
  }
  return {file, mode, 0, bytes, nullptr, MAP_NORESERVE};
}

}  // namespace

Mapping::Mapping() = default;
Mapping::~Mapping() = default;
Mapping::Mapping(Mapping&& other) noexcept
    : region_(std::move(other.region_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(region_, other.region_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Result<Mapping> Mapping::map(int fd, std::uint64_t bytes, Access access) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    return fail(MC_CORRUPT, "a memory file is shorter than its layout says");
  }
  Mapping mapping;
  if (bytes == 0) return fail(MC_NO_MEMORY, "cannot map 0 bytes");
  try {
    mapping.region_ = std::make_unique<ipc::mapped_region>(map_file(
        Descriptor(fd), bytes, access == Access::kRead ? ipc::read_only : ipc::read_write));
  } catch (const ipc::interprocess_exception& error) {
    return fail(MC_NO_MEMORY,
                errno_text("map " + std::to_string(bytes) + " bytes", error.get_native_error()));
  }
  mapping.data_ = static_cast<std::byte*>(mapping.region_->get_address());
  mapping.size_bytes_ = bytes;
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
  const bool writable = region_->get_mode() == ipc::read_write;
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
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
