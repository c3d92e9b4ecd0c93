// SPDX-License-Identifier: Apache-2.0
#include "crash/child.h"
#include "defect.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace mc::crash {

namespace {

int children_fd = -1;

[[noreturn]] void become(const Command& command, int input, int output) {
  // The child must not outlive the test, however the test ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(input, 0);
  ::dup2(output, 1);
  if (!command.log.empty()) {
    const int log = ::open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log >= 0) ::dup2(log, 2);
  }
  for (int fd = 3; fd < 256; ++fd) {
    if (fd != command.passed_fd) ::close(fd);
  }
  if (command.passed_fd >= 0) ::fcntl(command.passed_fd, F_SETFD, 0);
  for (const std::string& entry : command.environment) {
    ::putenv(const_cast<char*>(entry.c_str()));
  }
  std::vector<char*> arguments;
  for (const std::string& word : command.words)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

void watch_children() {
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  children_fd = ::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool wait_for_any(const std::vector<int>& fds, std::uint64_t timeout_ns) {
  std::vector<pollfd> polled{{children_fd, POLLIN, 0}};
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  const timespec timeout{static_cast<time_t>(timeout_ns / 1000000000),
                         static_cast<long>(timeout_ns % 1000000000)};
  const int ready = ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
  signalfd_siginfo info{};
  while (::read(children_fd, &info, sizeof info) > 0) {
  }
  return ready != 0;
}

Child::Child(const Command& command) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
  const Fd child_input(to[0]);
  const Fd child_output(from[1]);
  input_.reset(to[1]);
  output_.reset(from[0]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  pid_ = ::fork();
  if (pid_ == 0) become(command, child_input.get(), child_output.get());
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      exit_status_(other.exit_status_),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      read_(std::move(other.read_)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other) return *this;
  if (pid_ > 0) signal(SIGKILL), wait_for_end();
  pid_ = std::exchange(other.pid_, -1);
  exit_status_ = other.exit_status_;
  input_ = std::move(other.input_);
  output_ = std::move(other.output_);
  read_ = std::move(other.read_);
  return *this;
}

Child::~Child() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  wait_for_end();
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void Child::wait_for_end() {
  while (pid_ > 0 && ::waitpid(pid_, &exit_status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  mark_crash(exit_status_);
}

Child::State Child::look() {
  if (pid_ <= 0) return WIFSIGNALED(exit_status_) ? State::kKilled : State::kEnded;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG | WUNTRACED) != pid_) return State::kRunning;
  if (WIFSTOPPED(status)) return State::kStopped;
  exit_status_ = status;
  pid_ = -1;
  mark_crash(status);
  return WIFSIGNALED(status) ? State::kKilled : State::kEnded;
}

void Child::say(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  // look() finds a child that has ended.
  if (::write(input_.get(), text.data(), text.size()) < 0) return;
}

bool Child::read_more() {
  char chunk[4096];
  const ssize_t count = ::read(output_.get(), chunk, sizeof chunk);
  if (count > 0) read_.append(chunk, static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

std::optional<std::string> Child::line() {
  const std::size_t end = read_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  return line;
}

}  // namespace mc::crash
