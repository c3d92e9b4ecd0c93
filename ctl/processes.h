// SPDX-License-Identifier: Apache-2.0
//
// The processes that mcctl starts: mc's programs, and tools of the system.
// Threads: the main thread; starting forks.
// Owns: nothing; the caller waits for the processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mc::ctl {

// The path of mc's program: beside mcctl, else as PATH finds the name.
std::string program(const char* name);

// kWithParent: gets SIGTERM when mcctl ends. kOnItsOwn: goes on.
enum class Lives { kWithParent, kOnItsOwn };
// Starts a process that writes to the file log. Terminals send their signals to mcctl alone.
// processors: the only ones to run on; empty: all. -1: no process.
pid_t spawn(const std::vector<std::string>& words, const std::string& log, Lives lives,
            const std::vector<int>& processors = {});

// Binds this thread, and the processes that it starts, to the processors. Empty: no change.
void stay_on(const std::vector<int>& processors);

// The last line with text; empty if the file has none.
std::string last_line_of(const std::string& path);

}  // namespace mc::ctl
