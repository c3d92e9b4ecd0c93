// SPDX-License-Identifier: Apache-2.0
//
// Marks of failures that no repeat may excuse. tests/judge repeats a failed test, unless the output
//   of the test has a mark.
#pragma once

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <string>

namespace mc {

inline constexpr const char* kWrongBytes = "DEFECT: wrong bytes: ";
inline constexpr const char* kLostObject = "DEFECT: an acknowledged object is lost: ";

// For bytes that another thread or process compares: the mark names the key.
inline void mark_wrong_bytes(const std::string& key) {
  std::fprintf(stderr, "%s%s\n", kWrongBytes, key.c_str());
}

// Prints a mark if a process ended by a signal that a crash raises. wait_status is that of waitpid().
inline void mark_crash(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return;
  const int signal = WTERMSIG(wait_status);
  if (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
      signal == SIGABRT) {
    std::fprintf(stderr, "DEFECT: a process crashed: signal %d\n", signal);
  }
}

}  // namespace mc
