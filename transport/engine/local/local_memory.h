// SPDX-License-Identifier: Apache-2.0
//
// Checks of this process's memory, and memory that other processes can map
//   (shared_files.h). An address without memory would fail a socket call and end the connection
//   with all its transfers, so addresses of callers are checked first.
// Threads: any thread.
// Owns: the memory from allocate_shared(), until free_shared().
// Trusts: nothing. If another thread unmaps the memory after the check, the caller is at fault.
#pragma once

#include <cstdint>

#include "mc/status.h"

namespace mc::transfer {

// Checks for holes, and the rights of the first and the last page. Takes about 2 us.
bool is_memory(const void* data, std::uint64_t size_bytes, bool writable);

// Zeroed memory whose pages are allocated at first touch. Errors: MC_NO_MEMORY.
Result<void*> allocate_shared(std::uint64_t size_bytes);
// False: not from allocate_shared(), or freed already.
bool free_shared(void* memory);

}  // namespace mc::transfer
