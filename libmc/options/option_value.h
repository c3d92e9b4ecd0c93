// SPDX-License-Identifier: Apache-2.0
//
// Option values: from text to a checked value, and back.
// Threads: any; pure functions.
// Trusts: nothing. The operator's text is bounded, and errors show it only after quoted().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mc/status.h"

namespace mc::options {

// No option, path or list needs more. A longer text is refused before parsing.
inline constexpr std::size_t kMaxValueBytes = 4096;
inline constexpr std::size_t kMaxUids = 256;
// sockaddr_un has 108 bytes for a path, including the terminating zero.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

enum class ValueKind {
  kText,    // any text
  kPath,    // a path; a relative path becomes an absolute path
  kName,    // a namespace's name
  kChoice,  // one of a few words
  kSize,    // bytes, parse_size()
  kCount,   // a whole number
  kOctal,   // a file mode
  kSwitch,  // true or false
  kUids,    // numbers separated by commas
};

using OptionValue = std::variant<std::string, std::uint64_t, bool, std::vector<std::uint32_t>>;

// The values that an option accepts. lowest, highest: of numbers and sizes, and of the length of a
// text or path.
struct ValueDomain {
  ValueKind kind = ValueKind::kCount;
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  // 0 is also allowed and means "choose for me"; also an empty choice or path
  bool may_be_zero = false;
  std::vector<std::string_view> choices;
  // Earlier words of a choice, each with the present word. accepts() does not list earlier words.
  std::vector<std::pair<std::string_view, std::string_view>> earlier = {};

  // "a size from 1MiB to 64TiB, such as 4GiB"
  std::string accepts() const;
  // The name of a value in the help: "SIZE".
  std::string type() const;
};

// The levels of log_level in every program.
ValueDomain log_levels();

// folder: the folder of relative paths; empty: a relative path is outside the domain. Nullopt: the
// text is outside the domain.
std::optional<OptionValue> parse_value(const ValueDomain& domain, std::string_view text,
                                       const std::string& folder = {});
// parse_value(domain, format_value(domain, value)) returns value.
std::string format_value(const ValueDomain& domain, const OptionValue& value);
// 4096, 64KiB, 1.5G, 2TiB: powers of 1024 with or without the i.
Result<std::uint64_t> parse_size(std::string_view text);
// 1GiB, 1536MiB, 4097: the largest unit that leaves a whole number.
std::string format_size(std::uint64_t bytes);

// One to MC_MAX_NAMESPACE_BYTES of A-Z a-z 0-9 . _ -
bool is_namespace_name(std::string_view name);
// Text between quotes for an error: control characters escaped, cut after 80 bytes.
std::string quoted(std::string_view text);
std::string_view trimmed(std::string_view text);

}  // namespace mc::options
