// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/stage.h"

#include <fcntl.h>
#include <json/value.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctl/processes.h"
#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "libmc/client/admin.h"

namespace mc::ctl {

namespace {

constexpr int kPort = 7400;
constexpr int kLookMs = 20;
constexpr const char* kAgentPool = "16MiB";

bool succeeds(const std::vector<std::string>& words) {
  const pid_t pid = spawn(words, "/dev/null", Lives::kWithParent);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  std::vector<int> found;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) found.push_back(i);
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<Stage>> Stage::open(unsigned agents, std::uint64_t timeout_ns) {
  auto stage = std::unique_ptr<Stage>(new Stage);
  if (Status status = stage->start(agents, timeout_ns); !status.ok()) return fail(status);
  return stage;
}

Stage::~Stage() {
  for (const pid_t pid : children_) ::kill(pid, SIGTERM);
  for (const pid_t pid : children_) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  for (const std::string& net : made_) succeeds({"ip", "netns", "delete", net});
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

std::string Stage::net_of(unsigned number) const {
  return namespaces_ ? prefix_ + std::to_string(number) : std::string();
}

std::vector<int> Stage::processors(unsigned agent) const {
  const std::size_t each = processors_.size() / agents_;
  if (each == 0) return {};
  const auto first = processors_.begin() + static_cast<std::ptrdiff_t>(agent * each);
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

// All namespaces connect to a bridge inside the namespace of the master.
Status Stage::make_namespaces(unsigned agents) {
  prefix_ = "mc" + std::to_string(::getpid()) + "-";
  for (unsigned i = 0; i <= agents; ++i) {
    const std::string net = prefix_ + std::to_string(i);
    if (!succeeds({"ip", "netns", "add", net})) {
      return {MC_PERMISSION_DENIED, "this host does not let us make network namespaces"};
    }
    made_.push_back(net);
    succeeds({"ip", "-n", net, "link", "set", "lo", "up"});
  }
  const std::string& hub = made_.front();
  bool fine = succeeds({"ip", "-n", hub, "link", "add", "hub", "type", "bridge"}) &&
              succeeds({"ip", "-n", hub, "link", "set", "hub", "up"}) &&
              succeeds({"ip", "-n", hub, "addr", "add", "10.77.0.1/24", "dev", "hub"});
  for (unsigned i = 1; i <= agents && fine; ++i) {
    const std::string& net = made_[i];
    const std::string port = "p" + std::to_string(i);
    const std::string address = "10.77.0." + std::to_string(i + 1) + "/24";
    fine = succeeds({"ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0",
                     "netns", net}) &&
           succeeds({"ip", "-n", hub, "link", "set", port, "master", "hub", "up"}) &&
           succeeds({"ip", "-n", net, "link", "set", "eth0", "up"}) &&
           succeeds({"ip", "-n", net, "addr", "add", address, "dev", "eth0"});
  }
  return fine ? Status() : Status(MC_UNSUPPORTED, "this host has no bridges or veth pairs");
}

Status Stage::launch(unsigned number, std::vector<std::string> words, const std::string& log) {
  if (namespaces_) {
    const std::vector<std::string> inside{"ip", "netns", "exec", net_of(number)};
    words.insert(words.begin(), inside.begin(), inside.end());
  }
  const pid_t pid =
      spawn(words, log, Lives::kWithParent, processors((number == 0 ? agents_ : number) - 1));
  if (pid < 0) return {MC_NO_MEMORY, errno_text("fork", errno)};
  children_.push_back(pid);
  return {};
}

Status Stage::start(unsigned agents, std::uint64_t timeout_ns) {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/mc-stage.XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    return {MC_PERMISSION_DENIED, errno_text("mkdtemp " + pattern, errno)};
  }
  directory_ = pattern;
  agents_ = agents;
  processors_ = allowed_processors();
  namespaces_ = ::geteuid() == 0 && succeeds({"ip", "-Version"});
  if (namespaces_) {
    if (Status status = make_namespaces(agents); !status.ok()) return status;
  }
  unsigned char secret[32];
  if (::getrandom(secret, sizeof secret, 0) != sizeof secret) return Status(MC_INTERNAL);
  const std::string key_file = directory_ + "/cluster.key";
  {
    const Fd file(::open(key_file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    std::string text;
    for (const unsigned char byte : secret) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      return {MC_NO_SPACE, errno_text("write " + key_file, errno)};
    }
  }
  const int port = namespaces_ ? kPort : 20000 + static_cast<int>(::getpid() % 20000);
  const std::string master = (namespaces_ ? "10.77.0.1:" : "127.0.0.1:") + std::to_string(port);
  const std::string master_log = directory_ + "/master.log";
  if (Status status = launch(0,
                             {program("mc-master"), "--listen", master, "--cluster-key-file",
                              key_file, "--recover-ms", "100"},
                             master_log);
      !status.ok()) {
    return status;
  }
  for (unsigned i = 1; i <= agents; ++i) {
    const std::string runtime_dir = directory_ + "/" + std::to_string(i);
    if (::mkdir(runtime_dir.c_str(), 0700) != 0) {
      return {MC_PERMISSION_DENIED, errno_text("mkdir " + runtime_dir, errno)};
    }
    const std::string listen =
        namespaces_ ? "10.77.0." + std::to_string(i + 1) + ":" + std::to_string(kPort)
                    : std::string("127.0.0.1:0");
    if (Status status =
            launch(i,
                   {program("mc-agent"), "--runtime-dir", runtime_dir, "--pool-bytes", kAgentPool,
                    "--descriptor-store", "none", "--huge-pages", "off", "--masters", master,
                    "--cluster-key-file", key_file, "--listen", listen, "--log-level", "warn"},
                   runtime_dir + ".log");
        !status.ok()) {
      return status;
    }
    sockets_.push_back(runtime_dir + "/agent.sock");
  }
  return wait_until_joined(agents, timeout_ns);
}

Status Stage::wait_until_joined(unsigned agents, std::uint64_t timeout_ns) const {
  const std::uint64_t until_ns = now_ns() + timeout_ns;
  Json::Value request;
  request["verb"] = "status";
  for (unsigned i = 0; i < agents;) {
    const auto answer = client::admin_call(sockets_[i], request, timeout_ns);
    const bool joined = answer && (*answer)["cluster"]["master_ready"].asBool() &&
                        (*answer)["cluster"]["members"].asUInt() >= agents;
    if (joined) {
      ++i;
      continue;
    }
    if (now_ns() > until_ns) {
      const std::string runtime_dir = directory_ + "/" + std::to_string(i + 1);
      return {MC_TIMEOUT,
              "agent " + std::to_string(i + 1) +
                  " did not join in time; its log ends: " + last_line_of(runtime_dir + ".log") +
                  "; the master's: " + last_line_of(directory_ + "/master.log")};
    }
    ::poll(nullptr, 0, kLookMs);
  }
  return {};
}

}  // namespace mc::ctl
