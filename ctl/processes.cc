// SPDX-License-Identifier: Apache-2.0
#include "ctl/processes.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mc::ctl {

std::string program(const char* name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path() / name;
  return std::filesystem::exists(beside, error) ? beside.string() : std::string(name);
}

void stay_on(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  if (!processors.empty()) ::sched_setaffinity(0, sizeof set, &set);
}

pid_t spawn(const std::vector<std::string>& words, const std::string& log, Lives lives,
            const std::vector<int>& processors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (lives == Lives::kWithParent) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setsid();  // so that the terminal sends Ctrl-C to mcctl only
  stay_on(processors);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (in >= 0) ::dup2(in, 0);
  if (out >= 0) ::dup2(out, 1), ::dup2(out, 2);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

std::string last_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace mc::ctl
