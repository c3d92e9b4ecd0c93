// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/shared_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "transport/region.h"

namespace mc::transfer {

namespace {

std::string proc(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

bool may_be_mapped(int fd) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &status) == 0 &&
         status.st_blksize < static_cast<blksize_t>(kHugePageBytes);
}

}  // namespace

void SharedFiles::read_parts() {
  parts_.clear();
  std::ifstream maps(proc(pid_, "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" /memfd:") == std::string::npos) continue;
    Part part;
    char rights[5] = {};
    const int fields = std::sscanf(
        line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &part.start,
        &part.end, rights, &part.offset, &part.major, &part.minor, &part.inode);
    if (fields == 7 && rights[3] == 's') parts_.push_back(part);
  }
}

// The single file that lies under the whole entry. The kernel splits a mapping whose parts were
// advised or protected differently, so adjacent parts of one file are joined.
std::optional<SharedFiles::Part> SharedFiles::part_under(const DirectoryEntry& entry) const {
  const std::uint64_t end = entry.address + entry.size_bytes;
  std::optional<Part> whole;
  for (const Part& part : parts_) {
    if (part.end <= entry.address) continue;
    if (!whole) {
      if (part.start > entry.address) return std::nullopt;
      whole = part;
      whole->offset += entry.address - part.start;
      whole->start = entry.address;
    } else if (part.start != whole->end || !part.same_file(*whole) ||
               part.offset != whole->offset + (part.start - whole->start)) {
      return std::nullopt;
    }
    whole->end = part.end;
    if (whole->end >= end) return whole;
  }
  return std::nullopt;
}

// Opens a file that the process has open.
Fd SharedFiles::open_file(const Part& file, int flags) const {
  const std::string directory = proc(pid_, "fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
  if (!entries) return {};
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string path = directory + "/" + entry->d_name;
    struct stat status {};
    const auto is_it = [&] {
      return S_ISREG(status.st_mode) && status.st_ino == file.inode &&
             major(status.st_dev) == file.major && minor(status.st_dev) == file.minor;
    };
    if (::stat(path.c_str(), &status) != 0 || !is_it()) continue;
    Fd opened(::open(path.c_str(), flags | O_CLOEXEC));
    if (opened && ::fstat(opened.get(), &status) == 0 && is_it()) return opened;
  }
  return {};
}

Mapping SharedFiles::map(const DirectoryEntry& entry, std::uint64_t* offset) const {
  const auto part = part_under(entry);
  if (!part || part->offset > ~std::uint64_t{0} - entry.size_bytes) return {};
  const bool writes = (entry.rights & transport::kRemoteWrite) != 0;
  const Fd fd = open_file(*part, writes ? O_RDWR : O_RDONLY);
  if (!fd || !may_be_mapped(fd.get())) return {};
  const auto access = writes ? Mapping::Access::kReadWrite : Mapping::Access::kRead;
  auto mapping = Mapping::map(fd.get(), part->offset + entry.size_bytes, access);
  if (!mapping) return {};
  *offset = part->offset;
  return std::move(*mapping);
}

void SharedFiles::Window::prepare(std::uint64_t offset, std::uint64_t size_bytes) const {
#ifndef MADV_POPULATE_READ
  constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14, newer than Debian 12's libc headers
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  const std::uint64_t first = static_cast<std::uint64_t>(data - mapping.data()) + offset;
  for (std::uint64_t part = first / kHugePageBytes;
       part <= (first + size_bytes - 1) / kHugePageBytes; ++part) {
    if (touched[part].load(std::memory_order_relaxed)) continue;
    touched[part].store(true, std::memory_order_relaxed);
    const std::uint64_t begin = part * kHugePageBytes;
    // Older kernels ignore the advice; then each page takes a separate fault.
    ::madvise(mapping.data() + begin, std::min(kHugePageBytes, mapping.size_bytes() - begin),
              writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  }
}

std::shared_ptr<const SharedFiles::Window> SharedFiles::window(const DirectoryEntry& entry,
                                                               std::uint64_t generation) {
  const MutexLock lock(mutex_);
  const auto known = std::ranges::find_if(
      windows_, [&](const auto& window) { return window->descriptor == entry.descriptor; });
  if (known != windows_.end()) return (*known)->mapping ? *known : nullptr;
  auto window = std::make_shared<Window>();
  window->descriptor = entry.descriptor;
  std::uint64_t offset = 0;
  if (parts_of_ != generation) {
    read_parts();
    parts_of_ = generation;
  }
  window->mapping = map(entry, &offset);
  if (window->mapping) {
    window->data = window->mapping.data() + offset;
    window->writable = (entry.rights & transport::kRemoteWrite) != 0;
    window->touched =
        std::make_unique<std::atomic<bool>[]>(window->mapping.size_bytes() / kHugePageBytes + 1);
  }
  windows_.push_back(window);
  return window->mapping ? window : nullptr;
}

void SharedFiles::keep_only(const Directory& directory) {
  const MutexLock lock(mutex_);
  std::erase_if(windows_, [&](const auto& window) {
    return std::ranges::none_of(directory.entries, [&](const DirectoryEntry& entry) {
      return entry.descriptor == window->descriptor;
    });
  });
}

}  // namespace mc::transfer
