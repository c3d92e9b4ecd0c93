// SPDX-License-Identifier: Apache-2.0
//
// A first-in first-out queue in a block of memory, which stays allocated and grows by
//   doubling; so the hot path allocates nothing.
// Threads: the owner's.
// Owns: the items. REQUIRES: T is default-constructible and movable.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace mc::transport {

template <typename T>
class Queue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // From the front.
  T& operator[](std::size_t at) { return items_[(head_ + at) & (items_.size() - 1)]; }
  const T& operator[](std::size_t at) const { return items_[(head_ + at) & (items_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  T& push(T item) {
    T& place = push();
    place = std::move(item);
    return place;
  }
  // The place of a new last item, to be filled in. If T needs no destructor, the place holds an old
  // item; otherwise a fresh T.
  T& push() {
    if (size_ == items_.size()) grow();
    ++size_;
    return back();
  }
  void pop() {
    if constexpr (!std::is_trivially_destructible_v<T>) front() = T{};
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
  }
  void clear() {
    while (!empty()) pop();
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 16 : items_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    items_.swap(larger);
    head_ = 0;
  }
  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace mc::transport
