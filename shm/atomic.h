// SPDX-License-Identifier: Apache-2.0
//
// Words that two processes access at once, and their fences. All code in shm/ uses this header; the
// model checker in tests/model replaces it and tries every interleaving, store buffers included.
// Threads: any.
//
// In three places two sides write a word and then read the other side's word: pins against versions,
// ring against sleep word, and the two words of an OwnerLock. The two sides run full_fence() between.
// membarrier() in the place of a fence is not sound between processes: the kernel skips a processor
// whose idle task has kept the address space of a process since before the registration of the
// process (Linux 6.18, sync_runqueues_membarrier_state()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__) && !defined(MC_THREAD_SANITIZER)
#include <emmintrin.h>
#define MC_WORDS_BY_TWO 1
#endif

namespace mc::shm {

template <typename T>
class Word {
 public:
  T load_relaxed() const { return value_.load(std::memory_order_relaxed); }
  T load_acquire() const { return value_.load(std::memory_order_acquire); }
  void store_relaxed(T value) { value_.store(value, std::memory_order_relaxed); }
  void store_release(T value) { value_.store(value, std::memory_order_release); }
  T exchange(T value) { return value_.exchange(value, std::memory_order_acq_rel); }
  T fetch_or(T bits) { return value_.fetch_or(bits, std::memory_order_acq_rel); }
  bool compare_exchange(T& expected, T value) {
    return value_.compare_exchange_strong(expected, value, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }
  // For futex calls only.
  T* address() { return reinterpret_cast<T*>(&value_); }

 private:
  std::atomic<T> value_{0};
  static_assert(std::atomic<T>::is_always_lock_free && sizeof(std::atomic<T>) == sizeof(T));
};

using Word16 = Word<std::uint16_t>;
using Word32 = Word<std::uint32_t>;
using Word64 = Word<std::uint64_t>;

// Orders earlier loads before later loads.
inline void acquire_fence() { std::atomic_thread_fence(std::memory_order_acquire); }

// Returns a bit mask of the words whose upper 16 bits equal those of value. Loads each word whole,
// with acquire. Uses no branch, because the matching word is unpredictable.
template <std::size_t kCount>
inline unsigned same_upper_quarter(const Word64 (&words)[kCount], std::uint64_t value) {
  unsigned matches = 0;
#if defined(MC_WORDS_BY_TWO)
  static_assert(kCount % 2 == 0);
  const __m128i wanted = _mm_set1_epi64x(static_cast<long long>(value));
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kCount; i += 2) {
    // x86-64 never tears a word of this load: the pair lies within one cache line.
    const __m128i pair = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&words[i]));
    const __m128i same = _mm_cmpeq_epi16(pair, wanted);
    matches |= static_cast<unsigned>(_mm_movemask_pd(_mm_castsi128_pd(same))) << i;
  }
  acquire_fence();
#else
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kCount; ++i) {
    matches |= static_cast<unsigned>((words[i].load_acquire() ^ value) >> 48 == 0) << i;
  }
#endif
  return matches;
}

// Orders earlier stores before later loads.
inline void full_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
// Keeps the program's order of stores for the next agent, if this agent dies between them. Costs
// nothing: a processor that stops leaves no later store without the earlier ones.
inline void crash_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace mc::shm
