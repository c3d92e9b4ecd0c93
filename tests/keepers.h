// SPDX-License-Identifier: Apache-2.0
//
// The keeper of a runtime directory: an active process, and its standby.
#pragma once

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "libmc/base/fd.h"
#include "patience.h"
#include "process_stop.h"

namespace mc {

// The active keeper; 0 for none.
inline pid_t keeper_in(const std::string& runtime_dir) {
  std::ifstream file(runtime_dir + "/keeper.pid");
  pid_t pid = 0;
  return file >> pid ? pid : 0;
}

// The standby of an active keeper; 0 for none.
inline pid_t standby_of(pid_t keeper) {
  const std::string task = "/proc/" + std::to_string(keeper) + "/task/" + std::to_string(keeper);
  std::ifstream file(task + "/children");
  pid_t pid = 0;
  return file >> pid ? pid : 0;
}

inline bool has_standby(const std::string& runtime_dir) {
  const pid_t keeper = keeper_in(runtime_dir);
  return keeper > 0 && standby_of(keeper) > 0;
}

// Ends both processes in order. A keeper that was killed leaves its number behind.
inline void end_keeper(const std::string& runtime_dir) {
  const pid_t keeper = keeper_in(runtime_dir);
  std::string name;
  std::ifstream("/proc/" + std::to_string(keeper) + "/comm") >> name;
  if (keeper <= 0 || !name.starts_with("mc-keeper") || ::kill(keeper, SIGTERM) != 0) return;
  ::kill(keeper, SIGCONT);
  EXPECT_TRUE(until([&] { return keeper_in(runtime_dir) != keeper; })) << "the keeper does not end";
}

// Kills both processes, so that nothing holds the memory any more.
inline void kill_keeper_and_standby(const std::string& runtime_dir) {
  ASSERT_TRUE(until([&] { return has_standby(runtime_dir); }));
  const pid_t keeper = keeper_in(runtime_dir);
  stop_process(keeper);  // otherwise the keeper would replace the standby
  for (const pid_t pid : {standby_of(keeper), keeper}) {
    const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    ::kill(pid, SIGKILL);
    EXPECT_TRUE(wait_readable(handle.get(), kWatchdogNs));
  }
}

}  // namespace mc
