// SPDX-License-Identifier: Apache-2.0
#include "unit/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace mc::golden {

namespace {

constexpr std::size_t kRowBytes = 16;
constexpr std::size_t kMaxSectionBytes = 64 * 1024;

void add_row(const std::string& line, Bytes& bytes) {
  std::istringstream text(line);
  std::size_t at = 0;
  char colon = 0;
  text >> std::hex >> at >> colon;
  EXPECT_EQ(colon, ':') << line;
  for (unsigned value = 0; text >> value; ++at) {
    if (at >= bytes.size() || value > 0xff) {
      ADD_FAILURE() << "not a row of this section: " << line;
      return;
    }
    bytes[at] = static_cast<std::byte>(value);
  }
  EXPECT_TRUE(text.eof()) << line;
}

}  // namespace

Sections read(const std::string& name) {
  std::string path = MC_TEST_GOLDEN;
  path.append("/").append(name);
  std::ifstream file(path);
  EXPECT_TRUE(file) << name;
  Sections sections;
  Bytes* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != '[') {
      if (current != nullptr) add_row(line, *current);
      EXPECT_NE(current, nullptr) << line;
      continue;
    }
    const std::size_t end = line.find(']');
    const std::size_t size =
        end == std::string::npos ? 0 : std::strtoull(line.c_str() + end + 1, nullptr, 10);
    EXPECT_TRUE(size > 0 && size <= kMaxSectionBytes) << line;
    current = &sections[line.substr(1, end - 1)];
    current->resize(std::min(size, kMaxSectionBytes));
  }
  return sections;
}

std::string to_text(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += kRowBytes) {
    const auto row = bytes.subspan(at, std::min(kRowBytes, bytes.size() - at));
    if (std::ranges::all_of(row, [](std::byte byte) { return byte == std::byte{0}; })) continue;
    for (const unsigned shift : {12u, 8u, 4u, 0u}) text += kDigits[(at >> shift) & 15u];
    text += ':';
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto value = std::to_integer<unsigned>(row[i]);
      text += i == 8 ? "  " : " ";
      text += kDigits[value >> 4];
      text += kDigits[value & 15u];
    }
    text += '\n';
  }
  return text;
}

std::string section_text(std::string_view name, std::span<const std::byte> bytes) {
  return "[" + std::string(name) + "] " + std::to_string(bytes.size()) + "\n" + to_text(bytes);
}

void compare(const std::string& name, const Sections& ours) {
  const Sections sections = read(name);
  EXPECT_EQ(sections.size(), ours.size());
  for (const auto& [section, bytes] : ours) {
    const auto at = sections.find(section);
    if (at == sections.end()) {
      ADD_FAILURE() << "not in the golden file:\n" << section_text(section, bytes);
      continue;
    }
    EXPECT_EQ(to_text(at->second), to_text(bytes)) << section;
  }
}

}  // namespace mc::golden
