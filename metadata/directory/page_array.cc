// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/page_array.h"

#include <sys/mman.h>

#include <utility>

namespace mc::metadata {

PageArray PageArray::reserve(std::uint64_t bytes) {
  const std::uint64_t size = (bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
  // An extra step, so that the used part can begin at a multiple of a step.
  void* at = ::mmap(nullptr, size + kStepBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return {};
  auto* begin = static_cast<std::byte*>(at);
  const std::uint64_t skipped =
      (kStepBytes - reinterpret_cast<std::uintptr_t>(begin) % kStepBytes) % kStepBytes;
  if (skipped != 0) ::munmap(begin, skipped);
  if (skipped != kStepBytes) ::munmap(begin + skipped + size, kStepBytes - skipped);
  PageArray array;
  array.data_ = begin + skipped;
  array.size_bytes_ = size;
  // Only advice; a system without huge pages works too.
  ::madvise(array.data_, size, MADV_HUGEPAGE);
  ::madvise(array.data_, size, MADV_DONTDUMP);
  return array;
}

PageArray::~PageArray() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

void PageArray::release_until(std::uint64_t offset_bytes) {
  const std::uint64_t until = offset_bytes / kStepBytes * kStepBytes;
  if (until <= released_bytes_) return;
  ::madvise(data_ + released_bytes_, until - released_bytes_, MADV_DONTNEED);
  released_bytes_ = until;
}

void PageArray::swap(PageArray& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(released_bytes_, other.released_bytes_);
}

}  // namespace mc::metadata
