// SPDX-License-Identifier: Apache-2.0
//
// What it is: finds keys that are asked for more often than their holders should have to serve, and
//   advises one replica more. Counts are kept in a count-min sketch with conservative update
//   (Estan and Varghese, 2002) of 64 KiB, whatever the number of keys: an estimate is never below
//   the truth, and above it by little for the hot keys that matter here.
//   A window's counts say nothing about the next: all start again at 0.
// Threads: one. Owns: the sketch and a bounded list of keys above the threshold.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metadata/directory/directory.h"

namespace mc::metadata {

struct HotKeyOptions {
  std::uint64_t window_ns = 1'000'000'000;
  std::uint32_t locates_per_holder = 1000;  // in a window; more for each holder is hot
  std::uint32_t max_hot = 256;              // keys advised on in a window
};

struct HotKey {
  KeyHash hash;
  std::uint32_t locates = 0;  // in the window
  std::uint32_t holders = 0;  // so many there are: have one more
};

class HotKeys {
 public:
  explicit HotKeys(const HotKeyOptions& options) : options_(options) {}

  // A master that samples its locates says how many each stands for.
  void note(KeyHash hash, std::uint32_t weight = 1);
  // When a window has ended: the keys that need a replica more, hottest first; and a new window
  // begins. In between: nothing.
  std::vector<HotKey> advise(const Directory& directory, std::uint64_t now_ns);

  [[nodiscard]] bool window_over(std::uint64_t now_ns) const { return now_ns >= window_end_ns_; }
  // In the window under way.
  [[nodiscard]] std::uint32_t estimate(KeyHash hash) const;

 private:
  static constexpr std::size_t kRows = 4;
  static constexpr std::size_t kColumns = 4096;

  static std::array<std::size_t, kRows> cells(KeyHash hash);

  HotKeyOptions options_;
  std::array<std::uint32_t, kRows * kColumns> counts_{};
  std::vector<KeyHash> candidates_;
  std::uint64_t window_end_ns_ = 0;
};

}  // namespace mc::metadata
