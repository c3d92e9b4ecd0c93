// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/table.h"

#include <algorithm>
#include <utility>

namespace mc::ctl {
namespace {

bool starts_like_a_number(std::string_view cell) {
  if (!cell.empty() && (cell.front() == '-' || cell.front() == '+')) cell.remove_prefix(1);
  return !cell.empty() && cell.front() >= '0' && cell.front() <= '9';
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return out;
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::add_row(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    std::size_t width = display_width(header_[column]);
    std::size_t numbers = 0;
    std::size_t words = 0;
    for (const auto& row : rows_) {
      const std::string& cell = row[column];
      width = std::max(width, display_width(cell));
      // "-" means "no value" in both kinds of columns.
      if (cell.empty() || cell == "-") continue;
      ++(starts_like_a_number(cell) ? numbers : words);
    }
    widths.push_back(width);
    right.push_back(numbers > 0 && words == 0);
  }

  std::string out;
  const auto add_line = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - display_width(row[column]), ' ');
      if (column > 0) line += "  ";
      line += right[column] ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line(header_);
  for (const auto& row : rows_) add_line(row);
  return out;
}

}  // namespace mc::ctl
