// SPDX-License-Identifier: Apache-2.0
//
// What it is: a progress bar on standard error, drawn only when that is a terminal.
// Threads: one at a time. Owns its texts, borrows standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace mc::ctl {

class Progress {
 public:
  // total 0: unknown; only the note is shown then.
  Progress(std::string title, std::uint64_t total);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws at most ten times a second, so it may be called as often as convenient.
  void update(std::uint64_t done, std::string_view note = {});
  // Takes the bar off the screen, so that the result stands alone. Calling it again does nothing.
  void finish();

 private:
  std::string title_;
  std::uint64_t total_;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// One line: title, bar, percentage and note, cut to width columns. done beyond total counts as
// total.
std::string progress_line(std::string_view title, std::uint64_t done, std::uint64_t total,
                          std::string_view note, std::size_t width);

}  // namespace mc::ctl
