// SPDX-License-Identifier: Apache-2.0
//
// Finds keys with more locates than the holders should serve, and advises one more
//   replica. Counts are kept in a count-min sketch with conservative update (Estan and Varghese,
//   2002) of 64 KiB, whatever the number of keys. An estimate is never below the true count, and
//   only little above for hot keys. A window's counts do not predict the next window, so each
//   window starts at 0.
// Threads: a single thread.
// Owns: the sketch and a bounded list of keys above the threshold.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metadata/directory/directory.h"

namespace mc::metadata {

struct HotKeyOptions {
  std::uint64_t window_ns = 1'000'000'000;
  std::uint32_t locates_per_holder = 1000;  // in a window; a key with more locates a holder is hot
  std::uint32_t max_hot = 256;              // most keys advised in a window
};

struct HotKey {
  KeyHash hash;
  std::uint32_t locates = 0;  // in the window
  std::uint32_t holders = 0;  // present holders; the advice is one more
};

class HotKeys {
 public:
  explicit HotKeys(const HotKeyOptions& options) : options_(options) {}

  // weight: the number of locates that this sampled locate stands for.
  void note(KeyHash hash, std::uint32_t weight = 1);
  // At the end of a window: the keys that need another replica, hottest first; then a new window
  // begins. Otherwise nothing.
  std::vector<HotKey> advise(const Directory& directory, std::uint64_t now_ns);

  [[nodiscard]] bool window_over(std::uint64_t now_ns) const { return now_ns >= window_end_ns_; }
  // In the running window.
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
