// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/local_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "libmc/base/memory_file.h"

namespace mc::transfer {

namespace {
#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14, newer than Debian 12's libc headers
constexpr int MADV_POPULATE_WRITE = 23;
#endif

// A file stays open while it is in use: peers find the file among this process's descriptors.
struct Shared {
  MemoryFile file;
  Mapping mapping;
};
std::mutex shared_mutex;
std::map<const void*, Shared>& shared_memory() {
  static auto* const memory = new std::map<const void*, Shared>;  // lives until the process ends
  return *memory;
}
}  // namespace

Result<void*> allocate_shared(std::uint64_t size_bytes) {
  auto file = MemoryFile::create("mc-transfer", size_bytes);
  if (!file) return fail(file.error());
  auto mapping = Mapping::map(file->fd(), file->size_bytes(), Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  void* const memory = mapping->data();
  const std::lock_guard lock(shared_mutex);
  shared_memory().emplace(memory, Shared{std::move(*file), std::move(*mapping)});
  return memory;
}

bool free_shared(void* memory) {
  const std::lock_guard lock(shared_mutex);
  return shared_memory().erase(memory) > 0;
}

bool is_memory(const void* data, std::uint64_t size_bytes, bool writable) {
  const auto address = reinterpret_cast<std::uint64_t>(data);
  if (address == 0 || size_bytes == 0 || size_bytes > ~std::uint64_t{0} - address) return false;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address & ~(page - 1);
  const std::uint64_t last = (address + size_bytes - 1) & ~(page - 1);
  // On memory without a file, msync() only checks for holes.
  if (::msync(reinterpret_cast<void*>(first), last - first + page, MS_ASYNC) != 0) return false;
  const int rights = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  return ::madvise(reinterpret_cast<void*>(first), page, rights) == 0 &&
         ::madvise(reinterpret_cast<void*>(last), page, rights) == 0;
}

}  // namespace mc::transfer
