// SPDX-License-Identifier: Apache-2.0
#include "line_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "process_stop.h"

extern char** environ;

namespace mc {

LineProcess::LineProcess(std::vector<std::string> words) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = ::fdopen(from[0], "r");
  if (error != 0) throw std::runtime_error(words[0] + " cannot be started; is it built?");
}

LineProcess::~LineProcess() {
  kill();
  ::close(to_);
  std::fclose(from_);
}

std::string LineProcess::read_line() {
  char line[512];
  if (std::fgets(line, sizeof line, from_) == nullptr) return "";
  std::string text(line);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string LineProcess::tell(const std::string& command) {
  const std::string line = command + "\n";
  if (::write(to_, line.data(), line.size()) < 0) return "";
  return read_line();
}

void LineProcess::send(int signal) const {
  if (signal == SIGSTOP) {
    stop_process(pid_);  // a running process could still write much
  } else {
    ::kill(pid_, signal);
  }
}

void LineProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace mc
