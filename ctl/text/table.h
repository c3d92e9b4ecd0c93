// SPDX-License-Identifier: Apache-2.0
//
// An aligned text table for a terminal.
// Threads: a single thread at a time.
// Owns: its cells.
// Trusts: nothing; control characters and broken UTF-8 in cells print as '?', because labels come
//   from other processes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mc::ctl {

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Missing cells are empty; surplus cells are dropped.
  void add_row(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  std::size_t row_count() const { return rows_.size(); }
  // The header and the rows, one per line, with columns two spaces apart. A column whose filled
  // cells all start like numbers is right-aligned. No trailing spaces.
  std::string to_string() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// The columns of a UTF-8 text on a terminal, with one column per code point.
std::size_t display_width(std::string_view text);
// The text with '?' for each control character and each byte that is not UTF-8: safe to print to a
// terminal.
std::string printable(std::string_view text);
// The leading code points that fit into this many columns. REQUIRES: the text is printable.
std::string cut_to_width(std::string_view text, std::size_t width);

}  // namespace mc::ctl
