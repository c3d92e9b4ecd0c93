// SPDX-License-Identifier: Apache-2.0
//
// What it is: the words that two processes see at once, and the two fences between them. Everything
// in shm/ goes through this header, so that the model checker in tests/model can put its own in its
// place and try every interleaving, store buffers included. Threads: any.
//
// The asymmetric fence: where a frequent reader ("light") and a rare agent ("heavy") each write one
// word and then read the other's, a store-load fence is needed on both sides. The agent's
// membarrier() runs one on every core that runs a registered process, so the reader's side costs
// nothing.
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

// Loads before it stay before loads after it.
inline void acquire_fence() { std::atomic_thread_fence(std::memory_order_acquire); }

// A bit for each of the words whose upper 16 bits are those of value; each word is loaded whole,
// with acquire. Without a branch: which one matches cannot be predicted.
template <std::size_t kCount>
inline unsigned same_upper_quarter(const Word64 (&words)[kCount], std::uint64_t value) {
  unsigned matches = 0;
#if defined(MC_WORDS_BY_TWO)
  static_assert(kCount % 2 == 0);
  const __m128i wanted = _mm_set1_epi64x(static_cast<long long>(value));
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kCount; i += 2) {
    // x86-64 never tears a word of such a load: it lies within one line.
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

// Stores before it are visible before loads after it.
inline void full_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
// The cheap side of an asymmetric pair: stops the compiler only.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
// The dear side: a full fence here and on every core that runs a registered process.
void heavy_fence();
// Makes this process' light fences count in the heavy fences of others. False: the kernel has no
// membarrier; then nothing here may run, since light fences would be none.
bool register_for_heavy_fences();

}  // namespace mc::shm
