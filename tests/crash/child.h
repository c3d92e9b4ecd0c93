// SPDX-License-Identifier: Apache-2.0
//
// A child process of a crash test, with pipes to standard input and output.
//   wait_for_any() waits for the next event: a line from a child, or a child that stopped or ended.
// Threads: the test's main thread.
// Owns: the process; the destructor kills it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/fd.h"
#include "patience.h"

namespace mc::crash {

struct Command {
  std::vector<std::string> words;        // the program and the arguments
  std::vector<std::string> environment;  // NAME=value, beside the inherited variables
  std::string log;                       // file for standard error, appended; empty: inherited
  int passed_fd = -1;                    // stays open in the child under the same number
};

class Child {
 public:
  enum class State { kRunning, kStopped, kKilled, kEnded };

  Child() = default;
  explicit Child(const Command& command);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  int output() const { return output_.get(); }
  // The state of the child; kStopped only once for each stop.
  State look();
  bool alive() const { return pid_ > 0; }
  int exit_status() const { return exit_status_; }  // as waitpid() returned it
  void say(std::string_view line);
  void close_input() { input_.reset(); }
  // A complete line, without the line end.
  std::optional<std::string> line();
  // Reads the available bytes. Returns false at end of file.
  bool read_more();
  void signal(int number) const;
  void wait_for_end();

 private:
  pid_t pid_ = -1;
  int exit_status_ = 0;
  Fd input_;
  Fd output_;
  std::string read_;
};

// Returns true if an fd is readable or a child has changed state, and false at the timeout.
bool wait_for_any(const std::vector<int>& fds, std::uint64_t timeout_ns);
// Blocks SIGCHLD, so that wait_for_any() sees the signal. Call before the first thread starts.
void watch_children();

}  // namespace mc::crash
