// SPDX-License-Identifier: Apache-2.0
//
// The two ways to copy bytes into and out of a pool.
// - copy_out: blocks of a few KiB to a buffer that is used at once. Plain vector loads and stores
//   let the processor start the next look-up meanwhile; libc's string instructions do not.
// - copy_in: to memory that is probably in no cache. Streaming stores do not fetch the overwritten
//   lines. On the measured machines a 4 KiB put takes half the time.
// Threads: any. REQUIRES: the ranges do not overlap.
#pragma once

#include <cstddef>

namespace mc {

void copy_out(void* to, const void* from, std::size_t size);
// Streaming stores may become visible late: call order_copies() before another thread is told.
// ahead_bytes: the copy prefetches the source this far ahead; 0: no prefetch.
void copy_in(void* to, const void* from, std::size_t size, std::size_t ahead_bytes = 0);
// Orders all copy_in() of this thread before later stores of this thread.
void order_copies();

}  // namespace mc
