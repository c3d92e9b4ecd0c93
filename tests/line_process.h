// SPDX-License-Identifier: Apache-2.0
//
// A helper program of a test, which reads a command per line and answers each with a line.
// Threads: the test's thread.
// Owns: the process; the destructor ends the process.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace mc {

class LineProcess {
 public:
  // words: the path of the program, and the arguments. Throws if the program cannot be started.
  explicit LineProcess(std::vector<std::string> words);
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;
  ~LineProcess();

  pid_t pid() const { return pid_; }
  // The next line without the newline; "" if the process is gone.
  std::string read_line();
  // Sends the command and returns the answer.
  std::string tell(const std::string& command);
  void send(int signal) const;  // returns after the stop for SIGSTOP
  void kill();

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  std::FILE* from_ = nullptr;
};

}  // namespace mc
