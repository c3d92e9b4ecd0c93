// SPDX-License-Identifier: Apache-2.0
//
// What it is: keys, which are any bytes, as printable text and back: %XX for what is not printable.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing; what does not parse is nullopt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mc::ctl {

// Bytes outside printable ASCII (0x20 to 0x7e), and '%', become %XX with upper-case digits.
std::string escape_key(std::string_view key);
// The reverse; either case of digits. Nullopt: a '%' without two hexadecimal digits after it.
std::optional<std::string> unescape_key(std::string_view text);

}  // namespace mc::ctl
