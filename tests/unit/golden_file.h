// SPDX-License-Identifier: Apache-2.0
//
// Golden files: named sections of bytes as hexadecimal text. A changed byte thus shows
//   as a changed line of a diff. Rows of zeros are left out.
//
//     [entries] 512
//     0040: 02 09 00 00 00 00 00 00  00 00 00 00 00 00 00 00
// Threads: Values.
// Trusts: A malformed file fails the test that reads the file.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mc::golden {

using Bytes = std::vector<std::byte>;
using Sections = std::map<std::string, Bytes>;

// The sections of tests/golden/<name>.
Sections read(const std::string& name);
// Fails the test unless tests/golden/<name> has these sections and no others.
void compare(const std::string& name, const Sections& ours);
// The rows of a section, as in the file.
std::string to_text(std::span<const std::byte> bytes);
// One section with its head, ready to be pasted into a new file.
std::string section_text(std::string_view name, std::span<const std::byte> bytes);

template <typename T>
Bytes bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace mc::golden
