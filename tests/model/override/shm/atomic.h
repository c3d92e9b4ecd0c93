// SPDX-License-Identifier: Apache-2.0
//
// What it is: shm/atomic.h as the model checker sees it: the same interface, each operation a step
// of
//   the simulated machine. It also redirects the plain accesses of shared bytes and the system
//   calls of the product's .cc files, so that they run here unchanged.
// Threads: those of tests/model/machine.h.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <semaphore>  // its own system calls are to stay
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

// In a namespace of its own: an object compiled with the product's header cannot link with this
// one.
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

// Loads of one thread happen in order here, so this says nothing.
inline void acquire_fence() {}
// Word by word: others' steps come between them.
template <std::size_t kCount>
inline unsigned same_upper_quarter(const Word64 (&words)[kCount], std::uint64_t value) {
  unsigned matches = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    matches |= static_cast<unsigned>((words[i].load_acquire() ^ value) >> 48 == 0) << i;
  }
  return matches;
}
inline void full_fence(MC_MODEL_SITE) { model::full_fence(site); }
// Stops the compiler, and the model has none.
inline void light_fence() {}
inline void heavy_fence(MC_MODEL_SITE) { model::heavy_fence(site); }
inline bool register_for_heavy_fences() { return true; }

}  // namespace mc::shm
