// SPDX-License-Identifier: Apache-2.0
#include "crash/host.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "keepers.h"
#include "libmc/base/clock.h"
#include "libmc/client/admin.h"
#include "mc/mc.h"
#include "patience.h"
#include "pool_memory.h"

namespace mc::crash {

namespace {

// Pause between two questions to an agent that is absent or not yet in the wanted state.
constexpr std::uint64_t kAskAgainNs = 1'000'000;
// An agent that was stopped meanwhile does not answer.
const std::uint64_t kAnswerNs = kSecondNs / 2;

std::string make_directory() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/mc-crash-XXXXXX";
  return ::mkdtemp(path.data()) != nullptr ? path : std::string();
}

}  // namespace

Host::Host(const HostOptions& options) : directory_(make_directory()), options_(options) {
  std::ofstream config(directory_ + "/agent.toml");
  config << "isolated_allow_same_user = true\n";
  if (options.with_isolated) {
    config << "[[namespace]]\nname = \"iso\"\nmode = \"isolated\"\npool_bytes = \"8MiB\"\n"
              "max_pool_bytes = \"64MiB\"\n";
  }
}

Host::~Host() {
  stop();
  if (::testing::Test::HasFailure() && std::getenv("MC_TEST_KEEP") != nullptr) {
    std::printf("kept: %s\n", directory_.c_str());
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string Host::log_text() const {
  std::stringstream text;
  for (const char* name : {"/agent.log", "/clients.log"}) {
    std::ifstream file(directory_ + name);
    if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  }
  return text.str();
}

bool Host::log_shows(const std::string& text) const {
  return until([&] { return log_text().find(text) != std::string::npos; });
}

void Host::start_agent(std::vector<std::string> environment, int passed_fd) {
  Command command;
  command.words = {(MC_TEST_BIN "/mc-agent"),
                   "--config",
                   directory_ + "/agent.toml",
                   "--runtime-dir",
                   directory_,
                   "--pool-bytes",
                   std::to_string(options_.pool_mib) + "MiB",
                   "--max-pool-bytes",
                   std::to_string(options_.max_pool_mib) + "MiB",
                   "--keep-seconds",
                   option_time(20)};
  for (const std::string& flag : options_.flags) command.words.push_back(flag);
  command.environment = std::move(environment);
  command.log = log();
  command.passed_fd = passed_fd;
  agent_ = Child(command);
}

void Host::serve() {
  start_agent();
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (!pools_have_memory(ask(pool_memory_question())) && now_ns() < deadline_ns) {
    wait_for_any({}, kAskAgainNs);
  }
}

void Host::kill_agent() {
  agent_.signal(SIGKILL);
  agent_.wait_for_end();
}

pid_t Host::keeper() const { return keeper_in(directory_); }

void Host::kill_keeper() {
  const pid_t pid = keeper();
  if (pid <= 0) return;
  const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ::kill(pid, SIGKILL);
  wait_readable(handle.get(), kWatchdogNs);
}

void Host::stop() {
  if (agent_.alive()) {
    agent_.signal(SIGCONT);
    agent_.signal(SIGTERM);
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    while (agent_.look() == Child::State::kRunning && now_ns() < deadline_ns) {
      wait_for_any({}, kAskAgainNs * 5);
    }
    EXPECT_FALSE(agent_.alive()) << "the agent does not end at SIGTERM";
    agent_ = Child();
  }
  end_keeper(directory_);
}

Json::Value Host::ask(const Json::Value& request) {
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (now_ns() < deadline_ns) {
    auto answer = client::admin_call(socket(), request, kAnswerNs);
    if (answer) return *answer;
    if (look_) look_();
    wait_for_any({}, kAskAgainNs);
  }
  ADD_FAILURE() << "no agent answers; its log:\n" << log_text();
  return {};
}

Json::Value Host::status() {
  Json::Value request;
  request["verb"] = "status";
  return ask(request);
}

Json::Value pool_in(const Json::Value& status, const std::string& name) {
  for (const Json::Value& pool : status["namespaces"]) {
    if (pool["name"].asString() == name) return pool;
  }
  return {};
}

Json::Value Host::pool(const std::string& name) { return pool_in(status(), name); }

Json::Value Host::session_of(pid_t pid) {
  const Json::Value now = status();
  for (const Json::Value& session : now["sessions"]) {
    if (session["pid"].asInt() == pid) return session;
  }
  return {};
}

bool Host::status_becomes(const std::function<bool(const Json::Value&)>& wanted,
                          std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    if (wanted(status())) return true;
    if (now_ns() >= deadline_ns) return false;
    if (look_) look_();
    wait_for_any({}, kAskAgainNs);
  }
}

unsigned Host::kept_descriptors() const {
  unsigned count = 0;
  std::error_code error;
  const std::string fds = "/proc/" + std::to_string(keeper()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(fds, error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    const bool memory = target.find("memfd:mc-") != std::string::npos;
    count += memory || target.find("pidfd") != std::string::npos ? 1 : 0;
  }
  return count;
}

unsigned Host::await_descriptors(unsigned wanted) {
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  unsigned held = kept_descriptors();
  for (; held != wanted && now_ns() < deadline_ns; held = kept_descriptors()) {
    wait_for_any({}, kAskAgainNs);
  }
  return held;
}

OpenClient::OpenClient(const Host& host, const std::string& name_space) {
  mc_open_options options = MC_OPEN_OPTIONS_INIT;
  const std::string socket = host.socket();
  options.agent = socket.c_str();
  options.name_space = name_space.c_str();
  options.timeout_ns = kWatchdogNs / 2;
  static_cast<void>(mc_open(&options, &handle_));
}

Command client_command(const std::string& role, const Host& host,
                       std::vector<std::string> arguments) {
  Command command;
  command.words = {std::filesystem::read_symlink("/proc/self/exe").string(), role, host.socket()};
  for (std::string& argument : arguments) command.words.push_back(std::move(argument));
  command.log = host.directory() + "/clients.log";
  return command;
}

// ---- Accounting ---------------------------------------------------------------------------------

std::string accounting_error(Host& host, const std::string& name) {
  std::string problem;
  const auto settled = [&](const Json::Value& status) {
    const Json::Value pool = pool_in(status, name);
    std::uint64_t reserved_bytes = 0;
    std::uint64_t reservations = 0;
    for (const Json::Value& session : status["sessions"]) {
      if (session["namespace"].asString() != name) continue;
      reserved_bytes += session["reserved_bytes"].asUInt64();
      reservations += session["reservations"].asUInt64();
    }
    // Lengths here are whole granules, so sums of bytes are sums of granules.
    const std::uint64_t explained =
        pool["live_bytes"].asUInt64() + pool["limbo_bytes"].asUInt64() + reserved_bytes;
    problem.clear();
    if (pool["used_bytes"].asUInt64() != explained) {
      problem = "used_bytes=" + pool["used_bytes"].asString() +
                " but live, limbo and reserved are " + std::to_string(explained);
    } else if (pool["reservations"].asUInt64() != reservations) {
      problem = "reservations=" + pool["reservations"].asString() + " but sessions hold " +
                std::to_string(reservations);
    }
    return problem.empty();
  };
  if (host.status_becomes(settled, kWatchdogNs / 10)) return {};
  return problem;
}

std::string emptying_error(Host& host, const std::string& name) {
  const bool alone =
      host.status_becomes([](const Json::Value& status) { return status["sessions"].empty(); });
  if (!alone)
    return "sessions of ended clients stay: " + host.status()["sessions"].toStyledString();
  std::optional<OpenClient> client(std::in_place, host, name);
  if (client->handle() == nullptr) return std::string("open: ") + mc_last_error();
  Json::Value request;
  request["verb"] = "ls";
  request["namespace"] = name;
  std::string problem;
  // A number; of objects on a disk, a text.
  Json::Value cursor = 0;
  do {
    request["cursor"] = cursor;
    const Json::Value listed = host.ask(request);
    for (const Json::Value& object : listed["objects"]) {
      const std::string key = object["key"].asString();
      const mc_status status = mc_remove(client->handle(), {key.data(), key.size()}, 0);
      if (status != MC_OK) problem = "remove " + key + ": " + mc_status_name(status);
    }
    cursor = listed["cursor"];
    if (cursor.isNull()) problem = "ls: " + listed.toStyledString();
  } while (!cursor.empty() && cursor != 0 && cursor != "");
  client.reset();
  if (!problem.empty()) return problem;
  const bool empty = host.status_becomes(
      [&](const Json::Value& status) {
        const Json::Value pool = pool_in(status, name);
        return pool["used_bytes"].asUInt64() == 0 && pool["objects"].asUInt64() == 0 &&
               pool["reservations"].asUInt64() == 0 && pool["limbo"].asUInt64() == 0 &&
               status["sessions"].empty();
      },
      kWatchdogNs / 4);
  if (!empty) return "an emptied pool is not empty: " + host.pool(name).toStyledString();
  return {};
}

}  // namespace mc::crash
