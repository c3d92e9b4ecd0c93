// SPDX-License-Identifier: Apache-2.0
//
// The checks of a name and a descriptor that every descriptor store makes.
// Threads: any; the functions only look at their arguments and the descriptor.
// Trusts: nothing.
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
