// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

constexpr std::chrono::milliseconds kRedrawEvery{100};

std::size_t terminal_width() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return kUsual;
  return size.ws_col;
}

}  // namespace

std::string progress_line(std::string_view title, std::uint64_t done, std::uint64_t total,
                          std::string_view note, std::size_t width) {
  std::string line(title);
  if (total > 0) {
    constexpr std::size_t kBarColumns = 24;
    const double share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
    const auto filled = static_cast<std::size_t>(share * kBarColumns);
    line += fmt::format(" [{}{}] {:3.0f}%", std::string(filled, '#'),
                        std::string(kBarColumns - filled, '.'), share * 100);
  }
  if (!note.empty()) line += fmt::format("  {}", note);
  return cut_to_width(printable(line), width);
}

Progress::Progress(std::string title, std::uint64_t total)
    : title_(std::move(title)), total_(total), enabled_(isatty(STDERR_FILENO) == 1) {}

void Progress::update(std::uint64_t done, std::string_view note) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  const bool complete = total_ > 0 && done >= total_;
  if (drawn_ && !complete && now - last_ < kRedrawEvery) return;
  last_ = now;
  drawn_ = true;
  // One column stays free, because some terminals wrap. "\x1b[K" clears the rest of a longer line.
  const std::string line = progress_line(title_, done, total_, note, terminal_width() - 1);
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
}

void Progress::finish() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace mc::ctl
