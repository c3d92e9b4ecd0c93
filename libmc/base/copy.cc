// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mc {

namespace {

// Below this size the call of a loop costs more than it gains. Above kMostLoopBytes libc is as
// fast.
constexpr std::size_t kLeastLoopBytes = 512;
constexpr std::size_t kMostLoopBytes = 64 * 1024;
// A smaller object is likely to be read again before it leaves the cache.
constexpr std::size_t kLeastStreamBytes = 2048;

using Copy = void (*)(void*, const void*, std::size_t);
using Stream = void (*)(void*, const void*, std::size_t, std::size_t ahead_bytes);

void copy_plain(void* to, const void* from, std::size_t size) { std::memcpy(to, from, size); }
void stream_plain(void* to, const void* from, std::size_t size, std::size_t) {
  std::memcpy(to, from, size);
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void copy_avx512(void* to, const void* from, std::size_t size) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; size >= 512; size -= 512, out += 512, in += 512) {
    const __m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + 64);
    const __m512i c = _mm512_loadu_si512(in + 128), d = _mm512_loadu_si512(in + 192);
    const __m512i e = _mm512_loadu_si512(in + 256), f = _mm512_loadu_si512(in + 320);
    const __m512i g = _mm512_loadu_si512(in + 384), h = _mm512_loadu_si512(in + 448);
    _mm512_storeu_si512(out, a);
    _mm512_storeu_si512(out + 64, b);
    _mm512_storeu_si512(out + 128, c);
    _mm512_storeu_si512(out + 192, d);
    _mm512_storeu_si512(out + 256, e);
    _mm512_storeu_si512(out + 320, f);
    _mm512_storeu_si512(out + 384, g);
    _mm512_storeu_si512(out + 448, h);
  }
  std::memcpy(out, in, size);
}

__attribute__((target("avx2"))) void copy_avx2(void* to, const void* from, std::size_t size) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; size >= 128; size -= 128, out += 128, in += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(in);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    auto* target = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(target, a);
    _mm256_storeu_si256(target + 1, b);
    _mm256_storeu_si256(target + 2, c);
    _mm256_storeu_si256(target + 3, d);
  }
  std::memcpy(out, in, size);
}

// REQUIRES: to is a multiple of 64.
__attribute__((target("avx512f"))) void stream_avx512(void* to, const void* from, std::size_t size,
                                                      std::size_t ahead_bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; size >= 128; size -= 128, out += 128, in += 128) {
    _mm_prefetch(in + ahead_bytes, _MM_HINT_T0);
    _mm_prefetch(in + ahead_bytes + 64, _MM_HINT_T0);
    const __m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + 64);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + 64), b);
  }
  std::memcpy(out, in, size);
}

__attribute__((target("avx2"))) void stream_avx2(void* to, const void* from, std::size_t size,
                                                 std::size_t ahead_bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; size >= 64; size -= 64, out += 64, in += 64) {
    const auto* source = reinterpret_cast<const __m256i*>(in);
    _mm_prefetch(in + ahead_bytes, _MM_HINT_T0);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out) + 1, b);
  }
  std::memcpy(out, in, size);
}

Copy choose_copy() {
  if (__builtin_cpu_supports("avx512f")) return copy_avx512;
  return __builtin_cpu_supports("avx2") ? copy_avx2 : copy_plain;
}
Stream choose_stream() {
  if (__builtin_cpu_supports("avx512f")) return stream_avx512;
  return __builtin_cpu_supports("avx2") ? stream_avx2 : stream_plain;
}

#else

Copy choose_copy() { return copy_plain; }
Stream choose_stream() { return stream_plain; }

#endif

const Copy copy_loop = choose_copy();
const Stream stream_loop = choose_stream();

}  // namespace

void copy_out(void* to, const void* from, std::size_t size) {
  if (size < kLeastLoopBytes || size > kMostLoopBytes) {
    std::memcpy(to, from, size);
    return;
  }
  copy_loop(to, from, size);
}

void copy_in(void* to, const void* from, std::size_t size, std::size_t ahead_bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  if (size < kLeastStreamBytes) {
    std::memcpy(to, from, size);
    return;
  }
  const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64;
  std::memcpy(out, in, head);
  stream_loop(out + head, in + head, size - head, ahead_bytes);
}

void order_copies() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace mc
