// SPDX-License-Identifier: Apache-2.0
//
// Zeroed private memory for a large table. The address space is reserved at once. The
//   system provides pages on first touch, and the owner returns pages from the front.
// Threads: the owner's.
// Owns: the mapping.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::metadata {

class PageArray {
 public:
  // Huge pages, if the system has them: a table is read at random, and small pages would cost a
  // second cache miss for each read. Memory is also returned in this step.
  static constexpr std::uint64_t kStepBytes = 2u << 20;

  PageArray() = default;
  PageArray(PageArray&& other) noexcept { swap(other); }
  PageArray& operator=(PageArray&& other) noexcept {
    swap(other);
    return *this;
  }
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;
  ~PageArray();

  // Empty if the system has no address space left.
  static PageArray reserve(std::uint64_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  // The owner no longer uses memory before this offset. Whole steps return to the system.
  void release_until(std::uint64_t offset_bytes);
  [[nodiscard]] std::uint64_t released_bytes() const { return released_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  void swap(PageArray& other) noexcept;

  std::byte* data_ = nullptr;  // a multiple of kStepBytes
  std::uint64_t size_bytes_ = 0;
  std::uint64_t released_bytes_ = 0;
};

}  // namespace mc::metadata
