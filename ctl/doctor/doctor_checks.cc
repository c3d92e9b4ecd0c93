// SPDX-License-Identifier: Apache-2.0
#include "ctl/doctor/doctor_checks.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/core.h>

#include "ctl/text/size.h"

namespace mc::ctl {
namespace {

constexpr std::uint64_t kMebibyte = 1024 * 1024;

Verdict ok(std::string check, std::string finding) {
  return {std::move(check), Health::kOk, std::move(finding), {}};
}
Verdict warn(std::string check, std::string finding, std::string remedy) {
  return {std::move(check), Health::kWarn, std::move(finding), std::move(remedy)};
}
Verdict bad(std::string check, std::string finding, std::string remedy) {
  return {std::move(check), Health::kFail, std::move(finding), std::move(remedy)};
}

std::string_view whose(const HostFacts& facts) {
  return facts.limits_are_the_agents ? "the agent" : "this shell";
}

}  // namespace

std::string_view health_name(Health health) {
  constexpr std::array<std::string_view, 3> kNames{"ok", "warn", "fail"};
  return kNames[static_cast<std::size_t>(health)];
}

Verdict check_memlock(const HostFacts& facts) {
  constexpr std::uint64_t kEnoughBytes = 64 * kMebibyte;
  const std::string remedy =
      "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited before mc-agent: NICs and GPUs "
      "lock what they move";
  if (!facts.memlock_bytes) return warn("memlock", "the limit cannot be read", remedy);
  if (*facts.memlock_bytes == kUnlimited) {
    return ok("memlock", fmt::format("{} may lock any amount of memory", whose(facts)));
  }
  const std::string finding =
      fmt::format("{} may lock {} of memory", whose(facts), format_bytes(*facts.memlock_bytes));
  return *facts.memlock_bytes >= kEnoughBytes ? ok("memlock", finding)
                                              : warn("memlock", finding, remedy);
}

Verdict check_open_files(const HostFacts& facts) {
  // A session takes about ten descriptors, and an agent serves up to 1,024 sessions.
  constexpr std::uint64_t kEnough = 16384;
  constexpr std::uint64_t kLeast = 256;
  const std::string remedy = "LimitNOFILE=65536 in the unit, or ulimit -n 65536 before mc-agent";
  if (!facts.open_files) return warn("open-files", "the limit cannot be read", remedy);
  if (*facts.open_files == kUnlimited) {
    return ok("open-files", fmt::format("{} may open any number of files", whose(facts)));
  }
  const std::string finding =
      fmt::format("{} may open {} files", whose(facts), format_count(*facts.open_files));
  if (*facts.open_files < kLeast) return bad("open-files", finding, remedy);
  return *facts.open_files < kEnough
             ? warn("open-files", finding + ": few for many clients", remedy)
             : ok("open-files", finding);
}

Verdict check_huge_pages(const HostFacts& facts) {
  const std::string remedy =
      "sysctl vm.nr_hugepages=N for N pages of the pool, at boot, while memory is in one piece";
  if (!facts.huge_pages_total || !facts.huge_page_bytes) {
    return warn("huge-pages", "this kernel has no huge pages", "a kernel with CONFIG_HUGETLBFS");
  }
  if (*facts.huge_pages_total == 0) {
    return warn("huge-pages", "none are set aside; the pool runs on small pages", remedy);
  }
  const std::uint64_t free_pages = facts.huge_pages_free.value_or(0);
  return ok("huge-pages", fmt::format("{} of {} pages of {} are free", format_count(free_pages),
                                      format_count(*facts.huge_pages_total),
                                      format_bytes(*facts.huge_page_bytes)));
}

Verdict check_shmem_huge(const HostFacts& facts) {
  const std::string remedy =
      "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, for large pages without "
      "setting any aside";
  if (facts.shmem_huge.empty()) {
    return warn("shmem-thp", "this kernel has no transparent huge pages for shared memory",
                "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
  }
  const std::string finding = "shared memory gets large pages: " + facts.shmem_huge;
  return facts.shmem_huge == "never" || facts.shmem_huge == "deny"
             ? warn("shmem-thp", finding, remedy)
             : ok("shmem-thp", finding);
}

Verdict check_memory(const HostFacts& facts) {
  constexpr std::uint64_t kLeastBytes = 320 * kMebibyte;
  constexpr std::uint64_t kComfortBytes = 2048 * kMebibyte;
  if (!facts.available_bytes) {
    return warn("memory", "/proc/meminfo cannot be read", "mount /proc");
  }
  std::uint64_t free_bytes = *facts.available_bytes;
  std::string finding = format_bytes(free_bytes) + " available";
  const std::uint64_t limit = facts.group_limit_bytes.value_or(kUnlimited);
  if (limit != kUnlimited) {
    const std::uint64_t left = limit - std::min(limit, facts.group_used_bytes.value_or(0));
    finding +=
        fmt::format(", {} left of the control group's {}", format_bytes(left), format_bytes(limit));
    free_bytes = std::min(free_bytes, left);
  }
  if (free_bytes < kLeastBytes) {
    return bad("memory", finding, "free some memory, or raise the control group's memory.max");
  }
  return free_bytes < kComfortBytes
             ? warn("memory", finding + ": a small pool at most",
                    "free some memory, or raise the control group's memory.max")
             : ok("memory", finding);
}

Verdict check_dev_shm(const HostFacts& facts, const AgentFacts& agent) {
  constexpr std::uint64_t kEnoughBytes = 16 * kMebibyte;
  const bool used = agent.directory.starts_with("/dev/shm");
  if (!facts.dev_shm_bytes) {
    const std::string finding = "/dev/shm is not mounted";
    return used
               ? bad("dev-shm", finding, "mount -t tmpfs tmpfs /dev/shm, or another --runtime-dir")
               : warn("dev-shm", finding, "mount -t tmpfs tmpfs /dev/shm: NCCL and others want it");
  }
  const std::string finding = "/dev/shm has " + format_bytes(*facts.dev_shm_bytes);
  // The pool lies in memory files without names, which this size does not limit.
  return *facts.dev_shm_bytes < kEnoughBytes
             ? warn("dev-shm", finding, "mount -o remount,size=1G /dev/shm (docker: --shm-size 1g)")
             : ok("dev-shm", finding + "; the pool itself needs none of it");
}

Verdict check_kernel_version(const HostFacts& facts) {
  unsigned major = 0;
  unsigned minor = 0;
  if (std::sscanf(facts.kernel.c_str(), "%u.%u", &major, &minor) != 2) {
    return warn("kernel", "'" + facts.kernel + "' is no version", "Linux 5.15 or later");
  }
  const auto older_than = [&](unsigned than_major, unsigned than_minor) {
    return major < than_major || (major == than_major && minor < than_minor);
  };
  const std::string finding = "Linux " + facts.kernel;
  if (older_than(5, 15)) return bad("kernel", finding, "Linux 5.15 or later; 6.5 or later is best");
  return ok("kernel", finding);
}

Verdict check_cpus(const HostFacts& facts) {
  const std::string remedy = "two CPUs or more, so that agent and clients can spin side by side";
  if (facts.cpu_quota > 0 && facts.cpu_quota < 2) {
    return warn(
        "cpus",
        fmt::format("{} CPUs, but the control group may use {:.1f}", facts.cpus, facts.cpu_quota),
        remedy);
  }
  const std::string finding = fmt::format("{} CPU{}", facts.cpus, facts.cpus == 1 ? "" : "s");
  return facts.cpus < 2 ? warn("cpus", finding, remedy) : ok("cpus", finding);
}

Verdict check_clocksource(const HostFacts& facts) {
  constexpr std::array<std::string_view, 5> kWithoutSystemCall{
      "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"};
  const std::string remedy =
      "boot with clocksource=tsc tsc=reliable, if the CPU's counter is sound";
  if (facts.clocksource.empty()) return warn("clocksource", "cannot be read", "mount /sys");
  const bool fast = std::find(kWithoutSystemCall.begin(), kWithoutSystemCall.end(),
                              facts.clocksource) != kWithoutSystemCall.end();
  return fast ? ok("clocksource", facts.clocksource)
              : warn("clocksource",
                     facts.clocksource + ": every look at the clock is a slow system call", remedy);
}

Verdict check_systemd(const HostFacts& facts) {
  if (!facts.systemd_runs) {
    return ok("systemd", "does not run here; the agent is started by other means");
  }
  if (!facts.unit_file.empty()) return ok("systemd", facts.unit_file);
  return warn(
      "systemd", "runs, but there is no mc-agent.service",
      "install systemd/mc-agent.service: it restarts the agent and keeps the pool meanwhile");
}

std::vector<Verdict> check_kernel_features(const KernelFeatures& features) {
  struct Row {
    const char* name;
    bool present;
    bool required;
    const char* without;
    const char* remedy;
  };
  const std::array<Row, 6> rows{{
      {"memfd-sealing", features.sealed_memfd, true, "no memory can be shared safely",
       "Linux 3.17 or later, and a seccomp profile that allows memfd_create"},
      {"pidfd-open", features.pidfd_open, true, "the end of a client cannot be seen",
       "Linux 5.3 or later, and a seccomp profile that allows pidfd_open"},
      {"peer-pidfd", features.peer_pidfd, false,
       "clients are named by their number, which could be reused within microseconds",
       "Linux 6.5 or later"},
      {"futex-waitv", features.futex_waitv, false,
       "the death of one thread is seen only with its process", "Linux 5.16 or later"},
      {"populate-write", features.populate_write, false, "memory is touched page by page",
       "Linux 5.14 or later"},
      {"io-uring", features.io_uring, false, "only tiers on disks use it",
       "sysctl kernel.io_uring_disabled=0, and a seccomp profile that allows io_uring_setup"},
  }};
  std::vector<Verdict> out;
  for (const Row& row : rows) {
    if (row.present) {
      out.push_back(ok(row.name, "present"));
    } else if (row.required) {
      out.push_back(bad(row.name, std::string("missing: ") + row.without, row.remedy));
    } else if (std::string_view(row.name) == "io-uring") {
      out.push_back(ok(row.name, std::string("missing, which is fine: ") + row.without));
    } else {
      out.push_back(warn(row.name, std::string("missing: ") + row.without, row.remedy));
    }
  }
  return out;
}

std::vector<Verdict> all_checks(const HostFacts& host, const KernelFeatures& kernel,
                                const AgentFacts& agent) {
  std::vector<Verdict> out{
      check_agent(agent),        check_agent_version(agent), check_masters(agent),
      check_members(agent),      check_clocks(agent),        check_transports(host, agent),
      check_gpus(host, agent),   check_directory(agent),     check_socket(agent),
      check_systemd(host),       check_memory(host),         check_dev_shm(host, agent),
      check_huge_pages(host),    check_shmem_huge(host),     check_memlock(host),
      check_open_files(host),    check_cpus(host),           check_clocksource(host),
      check_kernel_version(host)};
  const std::vector<Verdict> features = check_kernel_features(kernel);
  out.insert(out.end(), features.begin(), features.end());
  return out;
}

}  // namespace mc::ctl
