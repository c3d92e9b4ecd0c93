// SPDX-License-Identifier: Apache-2.0
//
// A tier on one device, with a loop of its own in the place of an agent's.
// Threads: one, and the disk's.
// Owns: the tier.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "agent/tier/disk/open_disk.h"
#include "agent/tier/tier.h"
#include "libmc/base/clock.h"
#include "tier/cuts/die.h"

namespace mc::tier::cuts {

inline constexpr std::uint64_t kNamespace = 7;
inline constexpr std::uint64_t kSumSeed = 99;

class Driver {
 public:
  explicit Driver(const std::string& device)
      : tier_({.paths = {device}, .bytes_of_each = kLeastDiskBytes, .random = now_ns()}) {
    if (tier_.wait_fds().empty()) die(tier_.report().at(0).disk.text);
  }

  Log& log() { return tier_.log(); }
  Tier::Report report() const { return tier_.report().at(0); }
  // Ends and dropped objects that have come since the last call go behind the earlier ones.
  void turn() {
    const std::uint64_t now = now_ns(), next = log().next_work_ns();
    const std::uint64_t wait_ms =
        next <= now ? 0 : std::min<std::uint64_t>((next - now) / 1'000'000 + 1, 20);
    pollfd waits{.fd = tier_.wait_fds().at(0), .events = POLLIN, .revents = 0};
    ::poll(&waits, 1, static_cast<int>(wait_ms));
    tier_.do_work(now_ns());
    log().take_ended(ends);
    log().take_dropped(dropped);
    if (const std::string text = report().disk.text; !text.empty()) die(text);
  }
  template <typename Condition>
  void turn_until(const char* what, const Condition& condition) {
    const std::uint64_t begin = now_ns();
    while (!condition()) {
      turn();
      if (now_ns() - begin > kPatienceNs) die(std::string("no end: ") + what);
    }
  }
  void start() {
    turn_until("recovery", [this] { return !log().recovering() && log().takes_puts(); });
  }

  std::vector<LogEnd> ends;
  std::vector<Dropped> dropped;

 private:
  static constexpr std::uint64_t kPatienceNs = 120'000'000'000;

  Tier tier_;
};

}  // namespace mc::tier::cuts
