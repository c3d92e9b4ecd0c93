// SPDX-License-Identifier: Apache-2.0
//
// What it is: what every descriptor store demands of a name and a descriptor.
// Threads: any; pure but for a look at the descriptor. Trusts nothing.
#pragma once

#include <cstddef>
#include <string_view>

#include "mc/status.h"

namespace mc::agent {

inline constexpr std::size_t kMaxStoreNameBytes = 200;

// 1 to kMaxStoreNameBytes of A-Z a-z 0-9 . _ -
bool is_store_name(std::string_view name);
// Errors: MC_INVALID_ARGUMENT.
Status check_store_name(std::string_view name);
Status check_store_entry(std::string_view name, int fd);

}  // namespace mc::agent
