// SPDX-License-Identifier: Apache-2.0
//
// The stop of a process. kill(pid, SIGSTOP) returns earlier: the threads stop one after the other,
// and a thread that still runs may answer.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "patience.h"

namespace mc {

// True if no thread of the process runs. A thread that has ended counts as stopped.
inline bool is_stopped(pid_t pid) {
  std::error_code error;
  const std::string threads = "/proc/" + std::to_string(pid) + "/task";
  // The list of threads ends early if the process ends meanwhile.
  for (std::filesystem::directory_iterator at(threads, error), end; !error && at != end;
       at.increment(error)) {
    std::ifstream file(at->path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    // "TID (NAME) STATE …", and the name may contain ')'.
    const std::size_t state = stat.rfind(')') + 2;
    if (stat.size() > state && std::string("TtZX").find(stat[state]) == std::string::npos) {
      return false;
    }
  }
  return true;
}

// Stops the process. Returns when all threads stand still.
inline void stop_process(pid_t pid) {
  ASSERT_EQ(::kill(pid, SIGSTOP), 0) << "no process " << pid;
  ASSERT_TRUE(until([&] { return is_stopped(pid); })) << "process " << pid << " does not stop";
}

}  // namespace mc
