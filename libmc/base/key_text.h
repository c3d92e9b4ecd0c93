// SPDX-License-Identifier: Apache-2.0
//
// Keys as text, for JSON and terminals. Keys are bytes: the text has %XX for '%' and for each byte
// outside printable ASCII (0x20 to 0x7e).
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mc {

std::string escape_key(std::string_view key);
// Digits of either case. nullopt: two digits do not follow a '%'.
std::optional<std::string> unescape_key(std::string_view text);

}  // namespace mc
