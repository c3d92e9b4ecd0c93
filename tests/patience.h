// SPDX-License-Identifier: Apache-2.0
//
// How long tests wait. A slow machine fails no test: each wait, each deadline and each timer that a
// test gives to the product is a multiple of kSecondNs, or comes from option_time(). tests/judge
// measures the machine (tests/time_scale) and says in MC_TEST_TIME_SCALE how many times slower the
// machine is. Sanitizers slow all down.
// Threads: any.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "libmc/base/clock.h"
#include "sanitizer.h"

namespace mc {

// From 1 on a fast machine to 8, and twice or three times as much under a sanitizer.
inline double time_scale() {
  constexpr double kOfBuild = kThreadSanitizer ? 3 : kAddressSanitizer ? 2 : 1;
  const char* const text = std::getenv("MC_TEST_TIME_SCALE");
  const double measured = text == nullptr ? 1 : std::atof(text);
  return std::clamp(measured, 1.0, 8.0) * kOfBuild;
}
// No inline variables: their order of initialisation is open where one depends on another.
const double kTimeScale = time_scale();

// A second of a fast machine, in nanoseconds.
const auto kSecondNs = static_cast<std::uint64_t>(1e9 * kTimeScale);
// Longest wait for an event. A longer wait is a failure.
const std::uint64_t kWatchdogNs = 30 * kSecondNs;
// Longest test, for alarm(). CTest ends a test later (tests/CMakeLists.txt).
const auto kTestSeconds = static_cast<unsigned>(std::min(110 * kTimeScale, 580.0));

// A time of the product's options as text, in the option's unit: seconds or milliseconds.
inline std::string option_time(std::uint64_t time) {
  return std::to_string(std::llround(static_cast<double>(time) * kTimeScale));
}

// Waits until the condition holds. False: the watchdog fired. A turn counts at most 50 ms, so that
// a machine that stood still costs nothing.
template <typename Condition>
bool until(const Condition& holds, std::uint64_t limit_ns = kWatchdogNs) {
  constexpr std::uint64_t kLongestTurnNs = 50'000'000;
  std::uint64_t waited_ns = 0;
  for (std::uint64_t turn_ns = now_ns(); !holds();) {
    if (waited_ns >= limit_ns) return false;
    ::poll(nullptr, 0, 2);  // between two questions
    const std::uint64_t now = now_ns();
    waited_ns += std::min(now - turn_ns, kLongestTurnNs);
    turn_ns = now;
  }
  return true;
}

}  // namespace mc
