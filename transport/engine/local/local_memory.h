// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory of this process: whether an address that a caller gave is some (a socket call
//   that meets none ends its connection, and with it what others transfer there), and memory that
//   other processes can map (shared_files.h).
// Threads: any. Owns what allocate_shared() gave, until it is freed.
// Trusts nothing; what another thread unmaps a moment later is its own fault.
#pragma once

#include <cstdint>

#include "mc/status.h"

namespace mc::transfer {

// Looks for holes, and at the rights of the first and the last page. About 2 us.
bool is_memory(const void* data, std::uint64_t size_bytes, bool writable);

// Zeros; pages are taken as they are touched. Errors: MC_NO_MEMORY.
Result<void*> allocate_shared(std::uint64_t size_bytes);
// False: not from there, or freed already.
bool free_shared(void* memory);

}  // namespace mc::transfer
