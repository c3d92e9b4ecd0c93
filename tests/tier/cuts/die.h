// SPDX-License-Identifier: Apache-2.0
//
// The end of a program that cannot go on.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace mc::tier::cuts {

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "tier_cuts: %s\n", why.c_str());
  std::exit(1);
}

}  // namespace mc::tier::cuts
