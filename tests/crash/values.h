// SPDX-License-Identifier: Apache-2.0
//
// What it is: objects' bytes that tell which put they came from: made from key, version and length,
// so
//   that any process can say whether it read exactly one put.
// Threads: any. Trusts: nothing it is given to check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace mc::crash {

// REQUIRES: size_bytes >= 16, version > 0.
std::vector<std::byte> make_value(std::string_view key, std::uint64_t version,
                                  std::size_t size_bytes);
// The version whose value of that key bytes are; nullopt if they are none, or only a part of one.
std::optional<std::uint64_t> version_in(std::string_view key, std::span<const std::byte> bytes);

}  // namespace mc::crash
