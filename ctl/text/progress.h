// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on standard error, drawn only on a terminal.
// Threads: a single thread at a time.
// Owns: the texts; borrows standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace mc::ctl {

class Progress {
 public:
  // total 0: the total is unknown, and only the note is shown.
  Progress(std::string title, std::uint64_t total);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws at most ten times a second, so callers need not limit their calls.
  void update(std::uint64_t done, std::string_view note = {});
  // Removes the bar from the screen. A second call does nothing.
  void finish();

 private:
  std::string title_;
  std::uint64_t total_;
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// One line: title, bar, percentage and note, cut to width columns. If done is larger than total,
// the bar is full.
std::string progress_line(std::string_view title, std::uint64_t done, std::uint64_t total,
                          std::string_view note, std::size_t width);

}  // namespace mc::ctl
