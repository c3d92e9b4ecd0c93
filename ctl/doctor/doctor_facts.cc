// SPDX-License-Identifier: Apache-2.0
#include "ctl/doctor/doctor_facts.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/json.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number after "Name:" in a file such as /proc/meminfo.
std::optional<std::uint64_t> number_after(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return number_in(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> kib_after(const std::string& path, std::string_view name) {
  const auto kib = number_after(path, name);
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

// The soft limit in a line of /proc/PID/limits: "Max open files   1024   4096   files".
std::optional<std::uint64_t> limit_of_process(std::uint64_t pid, std::string_view name) {
  std::ifstream file(fmt::format("/proc/{}/limits", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    std::string soft;
    rest >> soft;
    return soft == "unlimited" ? kUnlimited : number_in(soft);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> own_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

void probe_limits(const AgentFacts& agent, HostFacts& out) {
  if (agent.answered && agent.pid != 0) {
    out.memlock_bytes = limit_of_process(agent.pid, "Max locked memory");
    out.open_files = limit_of_process(agent.pid, "Max open files");
    out.limits_are_the_agents = out.memlock_bytes && out.open_files;
  }
  if (out.limits_are_the_agents) return;
  out.memlock_bytes = own_limit(RLIMIT_MEMLOCK);
  out.open_files = own_limit(RLIMIT_NOFILE);
}

// "always [advise] never" -> "advise"
std::string chosen_word(const std::string& line) {
  const std::size_t from = line.find('[');
  const std::size_t to = line.find(']');
  if (from == std::string::npos || to == std::string::npos || to < from) return {};
  return line.substr(from + 1, to - from - 1);
}

// The folder of this process in the control group hierarchy, version 2; empty: no folder.
std::string group_folder() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) {
      const std::string folder = "/sys/fs/cgroup" + line.substr(3);
      struct stat info {};
      // In a container, the path is the path of the host, and the group is mounted at the root.
      return ::stat(folder.c_str(), &info) == 0 ? folder : "/sys/fs/cgroup";
    }
  }
  return {};
}

void probe_control_group(HostFacts& out) {
  std::string folder = group_folder();
  if (folder.empty()) return;
  if (folder.ends_with('/')) folder.pop_back();
  const std::string limit = read_line(folder + "/memory.max");
  out.group_limit_bytes = limit.empty() || limit == "max" ? kUnlimited : number_in(limit);
  out.group_used_bytes = number_in(read_line(folder + "/memory.current"));
  // "max 100000" or "150000 100000": microseconds of CPU in each period.
  std::istringstream quota(read_line(folder + "/cpu.max"));
  double allowed_us = 0;
  double period_us = 0;
  if (quota >> allowed_us >> period_us && period_us > 0) out.cpu_quota = allowed_us / period_us;
}

void probe_memory(HostFacts& out) {
  const std::string meminfo = "/proc/meminfo";
  out.available_bytes = kib_after(meminfo, "MemAvailable:");
  out.huge_page_bytes = kib_after(meminfo, "Hugepagesize:");
  out.huge_pages_total = number_after(meminfo, "HugePages_Total:");
  out.huge_pages_free = number_after(meminfo, "HugePages_Free:");
  out.shmem_huge = chosen_word(read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) out.dev_shm_bytes = shm.f_blocks * shm.f_frsize;
}

PathFacts path_facts(const std::string& path) {
  PathFacts out;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return out;
  out.exists = true;
  out.is_socket = S_ISSOCK(info.st_mode);
  out.is_directory = S_ISDIR(info.st_mode);
  out.mode = info.st_mode & 07777;
  out.uid = info.st_uid;
  return out;
}

}  // namespace

HostFacts probe_host(const AgentFacts& agent) {
  HostFacts out;
  probe_limits(agent, out);
  probe_memory(out);
  probe_control_group(out);
  utsname name{};
  if (::uname(&name) == 0) out.kernel = name.release;
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    out.cpus = static_cast<std::uint32_t>(CPU_COUNT(&cpus));
  }
  out.clocksource = read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    out.rdma_devices += (out.rdma_devices.empty() ? "" : ", ") + device.path().filename().string();
  }
  for (const auto& file : std::filesystem::directory_iterator("/dev", none)) {
    const std::string path = file.path().filename();
    const bool numbered = path.size() > 6 && path.find_first_not_of("0123456789", 6) == path.npos;
    if (path.starts_with("nvidia") && numbered) ++out.gpus;
  }
  out.systemd_runs = path_facts("/run/systemd/system").is_directory;
  for (const char* folder : {"/etc/systemd/system", "/run/systemd/system",
                             "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    const std::string unit = std::string(folder) + "/mc-agent.service";
    if (out.unit_file.empty() && path_facts(unit).exists) out.unit_file = unit;
  }
  return out;
}

AgentFacts probe_agent(const Context& context) {
  constexpr std::uint64_t kLongestWaitNs = 1000000000u;
  AgentFacts out;
  out.socket = socket_path(context);
  const std::size_t slash = out.socket.rfind('/');
  out.directory = slash == std::string::npos ? "." : slash == 0 ? "/" : out.socket.substr(0, slash);
  out.socket_facts = path_facts(out.socket);
  out.directory_facts = path_facts(out.directory);
  out.our_uid = ::geteuid();
  out.our_version = mc_version();
  Json::Value request;
  request["verb"] = "status";
  const auto answer =
      client::admin_call(out.socket, request, std::min(timeout_ns(context), kLongestWaitNs));
  if (!answer) {
    out.error = std::string(answer.error().text());
    return out;
  }
  out.answered = true;
  out.ready = flag_field(*answer, "ready");
  out.pid = number_field(*answer, "pid");
  out.version = text_field(*answer, "version");
  out.gpu_workers = array_field(*answer, "gpu_workers").size();
  for (const Json::Value& session : array_field(*answer, "sessions")) {
    const std::string because = text_field(field(session, "device_copies"), "own_because");
    if (because.empty()) continue;
    out.own_copies_of = text_field(session, "label") + " (pid " + text_field(session, "pid") + ")";
    out.own_copies_because = because;
    break;
  }
  const auto ask = [&](const char* verb) {
    request["verb"] = verb;
    return client::admin_call(out.socket, request, std::min(timeout_ns(context), kLongestWaitNs));
  };
  const auto rails = ask("rails");
  out.in_cluster = rails.has_value();
  if (!rails) return out;
  const Json::Value& beside = field(*rails, "one_sided");
  out.one_sided = text_field(beside, "transport");
  out.one_sided_devices = text_field(beside, "devices");
  out.one_sided_obstacles = text_field(beside, "obstacles");
  const Json::Value& cluster = field(*answer, "cluster");
  out.master_ready = flag_field(cluster, "master_ready");
  out.master_trouble = text_field(cluster, "master_trouble");
  if (!out.master_ready) return out;
  const auto nodes = ask("nodes");
  if (!nodes) return out;
  for (const Json::Value& node : array_field(*nodes, "nodes")) {
    ++out.members;
    const std::string name = text_field(node, "node") + " at " + text_field(node, "address");
    const Json::Value& ahead = field(node, "clock_ahead_ms");
    const std::int64_t ahead_ms = ahead.isInt64() ? ahead.asInt64() : 0;
    if (std::abs(ahead_ms) > std::abs(out.clock_ahead_ms)) {
      out.clock_ahead_ms = ahead_ms;
      out.clock_of = name;
    }
    if (flag_field(node, "reachable")) continue;
    if (!out.unreachable_members.empty()) out.unreachable_members += ", ";
    out.unreachable_members += name;
  }
  return out;
}

}  // namespace mc::ctl
