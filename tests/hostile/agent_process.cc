// SPDX-License-Identifier: Apache-2.0
#include "agent_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "defect.h"
#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "libmc/client/admin.h"
#include "pool_memory.h"

namespace mc::hostile {

namespace {

pid_t start(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

int wait_for(pid_t pid, std::uint64_t timeout_ns) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!wait_readable(pidfd.get(), timeout_ns)) ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  mark_crash(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string make_directory() {
  char path[] = "/tmp/mc-hostile-XXXXXX";
  EXPECT_NE(::mkdtemp(path), nullptr);
  return path;
}

void remove_directory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string program(const std::string& name) { return MC_TEST_BIN "/" + name; }

Ended run_program(const std::vector<std::string>& arguments) {
  const std::string directory = make_directory();
  const std::string path = directory + "/output";
  const Fd output(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Ended ended;
  ended.exit_code = wait_for(start(arguments, output.get()), kWatchdogNs);
  ended.output = text_of(path);
  remove_directory(directory);
  return ended;
}

AgentProcess::AgentProcess(const std::vector<std::string>& flags, const std::string& pool_bytes)
    : directory_(make_directory()) {
  arguments_ = {program("mc-agent"), "--runtime-dir",  directory_,     "--pool-bytes",
                pool_bytes,          "--keep-seconds", option_time(20)};
  arguments_.insert(arguments_.end(), flags.begin(), flags.end());
  start_agent();
}

void AgentProcess::start_agent() {
  const Fd output(
      ::open((directory_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  pid_ = start(arguments_, output.get());
  EXPECT_TRUE(connect_unix(socket(), kWatchdogNs)) << log();
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (alive() && now_ns() < deadline_ns && !pools_have_memory(order(pool_memory_question()))) {
  }
  EXPECT_TRUE(alive()) << log();
}

AgentProcess::~AgentProcess() {
  if (pid_ > 0) stop();
  remove_directory(directory_);
}

int AgentProcess::stop() {
  ::kill(pid_, SIGTERM);
  const int code = wait_for(pid_, kWatchdogNs);
  pid_ = -1;
  return code;
}

void AgentProcess::crash() {
  ::kill(pid_, SIGKILL);
  wait_for(pid_, kWatchdogNs);
  start_agent();
}

bool AgentProcess::alive() const {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         end.si_pid == 0;
}

std::size_t AgentProcess::fd_count() const {
  std::size_t count = 0;
  std::error_code ignored;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd", ignored)) {
    ++count;
  }
  return count;
}

std::uint64_t AgentProcess::memory_kib(const std::string& line) const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
  std::string name;
  std::uint64_t value = 0;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    if (words >> name && name == line + ":" && words >> value) return value;
  }
  return 0;
}

Json::Value AgentProcess::ask(const std::string& verb) const {
  Json::Value request;
  request["verb"] = verb;
  return order(request);
}

Json::Value AgentProcess::order(const Json::Value& request) const {
  auto answer = client::admin_call(socket(), request, kWatchdogNs);
  return answer ? *answer : Json::Value();
}

std::string AgentProcess::log() const { return text_of(directory_ + "/log"); }

}  // namespace mc::hostile
