// SPDX-License-Identifier: Apache-2.0
//
// Base64 with padding (RFC 4648), as etcd's JSON gateway writes keys and values.
// Threads: any. Trusts nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mc::metadata {

std::string base64(std::string_view bytes);
// nullopt: not base64, or padded wrongly.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace mc::metadata
