// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "agent/keeper/keeper_protocol.h"
#include "agent/keeper/keeper_store.h"

namespace mc::agent {
namespace {

// Between fork and exec, other threads may hold locks for ever: only system calls are allowed.
[[noreturn]] void report_and_exit(int report_fd, int error) {
  if (::write(report_fd, &error, sizeof error) < 0) ::_exit(2);
  ::_exit(1);
}

[[noreturn]] void become_keeper(int report_fd, char* const* arguments) {
  ::setsid();
  const pid_t keeper = ::fork();
  if (keeper < 0) report_and_exit(report_fd, errno);
  if (keeper > 0) ::_exit(0);
  // The link leads to the running program, even after an upgrade replaced the file.
  ::execv("/proc/self/exe", arguments);
  report_and_exit(report_fd, errno);
}

}  // namespace

Status spawn_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds) {
  std::array<std::string, 6> words{"mc-agent",  "--keeper",       "--runtime-dir",
                                   runtime_dir, "--keep-seconds", std::to_string(keep_seconds)};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();

  std::array<int, 2> pipe_fds{};
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) {
    return {MC_NO_MEMORY, errno_text("start the keeper: pipe", errno)};
  }
  const Fd report(pipe_fds[0]);
  Fd report_writer(pipe_fds[1]);
  const pid_t child = ::fork();
  if (child < 0) return {MC_NO_MEMORY, errno_text("start the keeper: fork", errno)};
  if (child == 0) become_keeper(report_writer.get(), arguments.data());
  report_writer.reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  // exec closes the last writer, so end of file means success.
  int error = 0;
  if (!wait_readable(report.get(), kKeeperStartNs)) {
    return {MC_INTERNAL,
            "the keeper's program did not start within 10 s; check the load of this host"};
  }
  if (::read(report.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
    return {MC_INTERNAL, errno_text("start the keeper: exec /proc/self/exe", error)};
  }
  return {};
}

}  // namespace mc::agent
