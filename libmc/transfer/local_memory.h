// SPDX-License-Identifier: Apache-2.0
//
// What it is: whether an address that a caller gave is memory of this process. A socket call that
//   meets none ends its connection, and with it what others transfer there.
// Threads: any. Trusts nothing; what another thread unmaps a moment later is its own fault.
#pragma once

#include <cstdint>

namespace mc::transfer {

// Looks for holes, and at the rights of the first and the last page. About 2 us.
bool is_memory(const void* data, std::uint64_t size_bytes, bool writable);

}  // namespace mc::transfer
