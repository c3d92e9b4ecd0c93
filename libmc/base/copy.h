// SPDX-License-Identifier: Apache-2.0
//
// What it is: the two ways bytes go in and out of a pool.
//   copy_out: blocks of a few KiB to a buffer that is used at once. Plain vector loads and stores:
//     unlike the string instructions that libc chooses there, they leave the processor free to
//     start the next look-up meanwhile.
//   copy_in: to memory that is most likely in no cache. Streaming stores do not fetch what they
//     overwrite; on the machines measured a 4 KiB put takes half the time.
// Threads: any. REQUIRES: the ranges do not overlap.
#pragma once

#include <cstddef>

namespace mc {

void copy_out(void* to, const void* from, std::size_t size);
// Streaming stores may become visible late: call order_copies() before telling anybody.
// ahead_bytes: while copying, starts to load what lies this far beyond; 0: nothing.
void copy_in(void* to, const void* from, std::size_t size, std::size_t ahead_bytes = 0);
// Orders all copy_in() of this thread before its later stores.
void order_copies();

}  // namespace mc
