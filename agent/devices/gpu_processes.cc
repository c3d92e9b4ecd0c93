// SPDX-License-Identifier: Apache-2.0
#include "agent/devices/gpu_processes.h"

#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace mc::agent {

namespace {

constexpr std::uint64_t kFirstWaitNs = 1'000'000'000;
constexpr std::uint64_t kLongestWaitNs = 60'000'000'000;
constexpr int kRefused = 2;  // mc-gpu's exit status

// /dev/nvidia0, /dev/nvidia1, ...: a file of the driver for each GPU.
std::vector<int> devices_of_host() {
  std::vector<int> devices;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = file.path().filename();
    if (!name.starts_with("nvidia")) continue;
    // Other names, as nvidiactl, have no number.
    if (const auto gpus = numbers_of_gpus(name.substr(6)); gpus && *gpus) {
      devices.insert(devices.end(), (*gpus)->begin(), (*gpus)->end());
    }
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace

GpuProcesses::GpuProcesses(const Options& options) : socket_(options.socket) {
  auto gpus = numbers_of_gpus(options.gpus).value();  // checked when the options were loaded
  if (!gpus && std::getenv("NOTIFY_SOCKET") == nullptr) gpus = devices_of_host();
  if (!gpus) return;
  for (const int device : *gpus) places_.emplace_back().device = device;
}

void GpuProcesses::tick(std::uint64_t now_ns) {
  for (Place& place : places_) {
    if (place.process) look(place, now_ns);
    if (!place.process && !place.refused && now_ns >= place.start_at_ns) start(place, now_ns);
  }
}

void GpuProcesses::start(Place& place, std::uint64_t now_ns) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string program = (self.parent_path() / "mc-gpu").string();
  std::string words[] = {"mc-gpu", "--socket=" + socket_,
                         "--device=" + std::to_string(place.device)};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int failure =
      ::posix_spawn(&place.pid, program.c_str(), nullptr, &attributes, arguments, environ);
  ::posix_spawnattr_destroy(&attributes);
  place.started_ns = now_ns;
  place.start_at_ns = now_ns + kLongestWaitNs;
  if (failure != 0) {
    spdlog::error("event=gpu_worker_not_started device={} cause=\"{}\"", place.device,
                  errno_text(program, failure));
    return;
  }
  // The process is a child that nothing else waits for, so that the pid stands for no other process.
  place.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, place.pid, 0)));
  if (!place.process) {  // no descriptor is free
    ::kill(place.pid, SIGKILL);
    ::waitpid(place.pid, nullptr, 0);
  }
}

void GpuProcesses::look(Place& place, std::uint64_t now_ns) {
  siginfo_t end{};
  if (::waitid(P_PIDFD, static_cast<id_t>(place.process.get()), &end, WEXITED | WNOHANG) != 0 ||
      end.si_pid == 0) {
    return;
  }
  place.process.reset();
  place.refused = end.si_code == CLD_EXITED && end.si_status == kRefused;
  const bool served = now_ns - place.started_ns >= kLongestWaitNs;
  place.wait_ns =
      served || place.wait_ns == 0 ? kFirstWaitNs : std::min(place.wait_ns * 2, kLongestWaitNs);
  place.start_at_ns = now_ns + place.wait_ns;
  spdlog::warn("event=gpu_worker_exit device={} pid={} {}={} effect=\"{}\"", place.device,
               place.pid, end.si_code == CLD_EXITED ? "status" : "signal", end.si_status,
               place.refused ? "not started again" : "another one starts");
}

}  // namespace mc::agent
