// SPDX-License-Identifier: Apache-2.0
//
// Checks of arguments that every store makes, and the namespace of a cluster: all its
//   keys begin with "mc/<cluster id>/".
// Threads: any.
// Trusts: nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

inline constexpr std::size_t kMaxClusterIdBytes = 64;

// 1 to 64 letters, digits, '.', '_' or '-'.
Status check_cluster_id(std::string_view cluster_id);
// "mc/<cluster id>/". REQUIRES: check_cluster_id.
std::string cluster_prefix(std::string_view cluster_id);

Status check_key(std::string_view key);
Status check_prefix(std::string_view prefix);
Status check_write(std::string_view key, std::string_view value);
// Of write_guarded().
Status check_guarded(const Guard& guard, std::string_view key,
                     const std::optional<std::string>& value);
Status check_ttl(std::uint32_t ttl_ms);

// Texts that all stores share.
std::string no_such_key(std::string_view key);
std::string no_such_lease(LeaseId lease);
Status list_too_large(std::string_view prefix);
// Returns the first 200 bytes of a server's text in quotation marks, with '?' for each control
// character.
std::string quoted(std::string_view text);

}  // namespace mc::metadata
