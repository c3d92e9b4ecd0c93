// SPDX-License-Identifier: Apache-2.0
//
// shm/atomic.h for the model checker: the same interface, with each operation a step of the
//   simulated machine. The header also redirects plain accesses of shared bytes and system calls,
//   so that the product's .cc files run unchanged.
// Threads: those of tests/model/machine.h.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <semaphore>  // must keep its own system calls
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/model/hooks.h"

namespace std {
using ::model_memcmp;
using ::model_memcpy;
}  // namespace std
#define memcpy model_memcpy
#define memcmp model_memcmp
#define syscall model_syscall
#define getrandom model_getrandom

namespace mc::shm {

// In a separate namespace: an object compiled with the product's header cannot link with this
// header.
inline namespace model_checked {

template <typename T>
class Word {
 public:
  T load_relaxed(MC_MODEL_SITE) const { return get(model::Order::kRelaxed, site); }
  T load_acquire(MC_MODEL_SITE) const { return get(model::Order::kOrdered, site); }
  void store_relaxed(T value, MC_MODEL_SITE) {
    model::store(&value_, sizeof(T), value, model::Order::kRelaxed, site);
  }
  void store_release(T value, MC_MODEL_SITE) {
    model::store(&value_, sizeof(T), value, model::Order::kOrdered, site);
  }
  T exchange(T value, MC_MODEL_SITE) {
    return static_cast<T>(model::rmw(&value_, sizeof(T), model::Rmw::kExchange, value, 0, site));
  }
  T fetch_or(T bits, MC_MODEL_SITE) {
    return static_cast<T>(model::rmw(&value_, sizeof(T), model::Rmw::kOr, bits, 0, site));
  }
  bool compare_exchange(T& expected, T value, MC_MODEL_SITE) {
    const T before = static_cast<T>(
        model::rmw(&value_, sizeof(T), model::Rmw::kCompareExchange, value, expected, site));
    const bool same = before == expected;
    expected = before;
    return same;
  }
  T* address() { return &value_; }

 private:
  T get(model::Order order, const model::Site& site) const {
    return static_cast<T>(model::load(&value_, sizeof(T), order, site));
  }
  T value_{0};
};

}  // namespace model_checked

using Word16 = Word<std::uint16_t>;
using Word32 = Word<std::uint32_t>;
using Word64 = Word<std::uint64_t>;

// Does nothing: the model executes loads of a thread in order.
inline void acquire_fence() {}
// Word by word: steps of other threads may come between two words.
template <std::size_t kCount>
inline unsigned same_upper_quarter(const Word64 (&words)[kCount], std::uint64_t value) {
  unsigned matches = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    matches |= static_cast<unsigned>((words[i].load_acquire() ^ value) >> 48 == 0) << i;
  }
  return matches;
}
inline void full_fence(MC_MODEL_SITE) { model::full_fence(site); }
// Nothing: only the thread itself dies, and its earlier stores still reach the memory.
inline void crash_fence() {}

}  // namespace mc::shm
