// SPDX-License-Identifier: Apache-2.0
//
// Kernels for many small blocks: a call of the driver costs about 2 us, a piece of a kernel far less.
//   The caller decides how many blocks run, since each block takes a multiprocessor from the engine.
//   No kernel needs shared memory or a barrier, so tests run the same code on a processor.
#include "libmc/device/kernels/piece.h"

namespace mc::device {

__device__ inline uint64_t thread_of_block() { return threadIdx.x; }

// A block copies the piece: whole words, where both addresses are multiples of the word.
__device__ inline void copy_piece(const CopiedPiece& piece) {
  uint64_t done = 0;
  if ((piece.to | piece.from) % sizeof(ulonglong2) == 0) {
    const uint64_t words = piece.bytes / sizeof(ulonglong2);
    ulonglong2* const to = reinterpret_cast<ulonglong2*>(piece.to);
    const ulonglong2* const from = reinterpret_cast<const ulonglong2*>(piece.from);
    for (uint64_t i = thread_of_block(); i < words; i += blockDim.x) to[i] = from[i];
    done = words * sizeof(ulonglong2);
  } else if ((piece.to | piece.from) % sizeof(uint64_t) == 0) {
    const uint64_t words = piece.bytes / sizeof(uint64_t);
    uint64_t* const to = reinterpret_cast<uint64_t*>(piece.to);
    const uint64_t* const from = reinterpret_cast<const uint64_t*>(piece.from);
    for (uint64_t i = thread_of_block(); i < words; i += blockDim.x) to[i] = from[i];
    done = words * sizeof(uint64_t);
  }
  unsigned char* const to = reinterpret_cast<unsigned char*>(piece.to);
  const unsigned char* const from = reinterpret_cast<const unsigned char*>(piece.from);
  for (uint64_t i = done + thread_of_block(); i < piece.bytes; i += blockDim.x) to[i] = from[i];
}

// ---- CRC-64/XZ --------------------------------------------------------------------------------
//
// Bits are reflected: the highest bit of a word is x^0. The remainder of all bytes is the exclusive or
// of the slices' remainders, each multiplied by x^(bits that follow the slice).

constexpr uint64_t kPolynomial = 0xC96C5795D7870F42;
constexpr uint64_t kOne = uint64_t{1} << 63;
constexpr uint64_t kSliceBytes = 4096;

// The value times x.
__host__ __device__ constexpr uint64_t shifted(uint64_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

struct Remainders {
  uint64_t of_byte[256] = {};
};

constexpr Remainders remainders() {
  Remainders made;
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = shifted(remainder);
    made.of_byte[byte] = remainder;
  }
  return made;
}

__device__ constexpr Remainders kRemainders = remainders();

__device__ inline uint64_t product(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  for (uint64_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = shifted(b);
  }
  return sum;
}

// x^(8 * bytes), by squaring.
__device__ inline uint64_t power_of_bytes(uint64_t bytes) {
  uint64_t result = kOne;
  uint64_t square = kOne >> 8;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = product(result, square);
    square = product(square, square);
  }
  return result;
}

}  // namespace mc::device

extern "C" {

// Copies the pieces; gathers if the destinations are neighbours, scatters if the sources are.
__global__ void mc_copy_pieces(const mc::device::CopiedPiece* pieces, uint32_t count) {
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) mc::device::copy_piece(pieces[i]);
}

// Adds each piece to the checksum that the piece names. A thread reads a slice.
__global__ void mc_checksum_pieces(const mc::device::SummedPiece* pieces, uint32_t count) {
  using namespace mc::device;
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
    const SummedPiece piece = pieces[i];
    const unsigned char* const from = reinterpret_cast<const unsigned char*>(piece.from);
    // An empty piece has a start, too.
    for (uint64_t begin = threadIdx.x * kSliceBytes; begin == 0 || begin < piece.bytes;
         begin += blockDim.x * kSliceBytes) {
      const uint64_t left = piece.bytes - begin;
      const uint64_t end = begin + (left < kSliceBytes ? left : kSliceBytes);
      uint64_t remainder = begin == 0 ? piece.start : 0;
      for (uint64_t at = begin; at < end; ++at) {
        remainder = (remainder >> 8) ^ kRemainders.of_byte[(remainder ^ from[at]) & 255];
      }
      remainder = product(remainder, power_of_bytes(piece.bytes - end + piece.after));
      atomicXor(reinterpret_cast<unsigned long long*>(piece.to),
                static_cast<unsigned long long>(remainder));
    }
  }
}

}  // extern "C"
