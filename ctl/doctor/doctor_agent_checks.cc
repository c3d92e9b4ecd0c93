// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>

#include <fmt/core.h>

#include "ctl/doctor/doctor_checks.h"

namespace mc::ctl {
namespace {

constexpr std::uint32_t kOthersAny = 0007;
constexpr std::uint32_t kOthersWrite = 0002;
constexpr std::uint32_t kGroupWrite = 0020;
constexpr std::int64_t kClocksApartMs = 1000;  // a late heartbeat shows as a clock that is behind

// Not this user, nor root, nor the user of the agent that answered (the owner of the socket).
bool strange_owner(const PathFacts& path, const AgentFacts& agent) {
  return path.uid != 0 && path.uid != agent.our_uid &&
         !(agent.answered && path.uid == agent.socket_facts.uid);
}

std::string mode_text(const PathFacts& path) {
  return fmt::format("mode {:04o}, owner {}", path.mode, path.uid);
}

}  // namespace

Verdict check_directory(const AgentFacts& agent) {
  const PathFacts& path = agent.directory_facts;
  const std::string name = "directory";
  const std::string finding = agent.directory + ": " + mode_text(path);
  if (!path.exists || !path.is_directory) {
    return {name, agent.answered ? Health::kWarn : Health::kFail,
            agent.directory + (path.exists ? " is no directory" : " does not exist"),
            "start mc-agent, which makes it, or mkdir -m 0700 " + agent.directory};
  }
  if (strange_owner(path, agent)) {
    return {name, Health::kFail, finding + ": somebody else could pose as the agent",
            "another --runtime-dir, owned by the agent's user, mode 0700"};
  }
  if ((path.mode & (kOthersWrite | kGroupWrite)) != 0) {
    return {name, Health::kFail, finding + ": others can replace the socket",
            "chmod 0700 " + agent.directory};
  }
  // The systemd unit allows a group (0750), so that the members of the group may connect.
  if ((path.mode & kOthersAny) != 0) {
    return {name, Health::kWarn, finding + ": every user can reach the socket",
            "chmod 0700 " + agent.directory + ", or 0750 to let a group in"};
  }
  return {name, Health::kOk, finding, {}};
}

Verdict check_socket(const AgentFacts& agent) {
  const PathFacts& path = agent.socket_facts;
  const std::string name = "socket";
  if (!path.exists) {
    return {name, Health::kFail, agent.socket + " does not exist",
            "start mc-agent, or name its socket with --agent or MC_AGENT"};
  }
  if (!path.is_socket) {
    return {name, Health::kFail, agent.socket + " is no socket",
            "name the agent's socket, usually RUNTIME-DIR/agent.sock"};
  }
  const std::string finding = agent.socket + ": " + mode_text(path);
  const bool reachable_by_all = (agent.directory_facts.mode & 0001) != 0;
  if ((path.mode & kOthersWrite) != 0 && reachable_by_all) {
    return {name, Health::kWarn, finding + ": every user may connect", "chmod o= " + agent.socket};
  }
  return {name, Health::kOk, finding, {}};
}

Verdict check_agent(const AgentFacts& agent) {
  const std::string name = "agent";
  if (!agent.answered) {
    return {name, Health::kFail, "does not answer: " + agent.error,
            "start mc-agent, or name its socket with --agent or MC_AGENT"};
  }
  const std::string finding = fmt::format("answers, pid {}", agent.pid);
  if (!agent.ready) {
    return {name, Health::kWarn, finding + ", still recovering",
            "wait a moment; mcctl status shows when it is ready"};
  }
  return {name, Health::kOk, finding, {}};
}

Verdict check_agent_version(const AgentFacts& agent) {
  const std::string name = "version";
  if (!agent.answered) {
    return {name, Health::kWarn, "mcctl " + agent.our_version + ", agent unknown",
            "start mc-agent, then run this again"};
  }
  if (agent.version != agent.our_version) {
    return {name, Health::kWarn,
            fmt::format("mcctl {}, agent {}", agent.our_version, agent.version),
            "install both from one release, then restart the agent: it keeps its objects"};
  }
  return {name, Health::kOk, "mcctl and agent " + agent.version, {}};
}

Verdict check_masters(const AgentFacts& agent) {
  const std::string name = "masters";
  if (!agent.answered) {
    return {name, Health::kWarn, "whether a master knows this host is unknown",
            "start mc-agent, then run this again"};
  }
  if (!agent.in_cluster) return {name, Health::kOk, "none: the agent is in no cluster", {}};
  if (agent.master_ready) return {name, Health::kOk, "know this host", {}};
  return {name, Health::kFail,
          "objects of other hosts cannot be found: " +
              (agent.master_trouble.empty() ? "the agent has not joined a master yet"
                                            : agent.master_trouble),
          "mend what is named, or start a master: mc-master; mcctl cluster status shows each "
          "partition"};
}

Verdict check_members(const AgentFacts& agent) {
  const std::string name = "members";
  if (!agent.master_ready) return {name, Health::kOk, "no master lists members", {}};
  const std::string count = fmt::format("{} in the cluster", agent.members);
  if (agent.unreachable_members.empty()) return {name, Health::kOk, count, {}};
  return {
      name, Health::kWarn, count + "; this host does not reach " + agent.unreachable_members,
      "mcctl ping tries a member; if the network is well, set listen or advertise of that agent to "
      "an address that this host reaches"};
}

Verdict check_clocks(const AgentFacts& agent) {
  const std::string name = "clocks";
  if (agent.members < 2) return {name, Health::kOk, "no other host's clock is known", {}};
  const std::int64_t apart_ms = std::abs(agent.clock_ahead_ms);
  if (apart_ms <= kClocksApartMs) {
    return {name,
            Health::kOk,
            fmt::format("of all hosts are within {} ms of this host's", apart_ms),
            {}};
  }
  return {
      name, Health::kWarn,
      fmt::format("{} is {:.1f} s {} this host", agent.clock_of,
                  static_cast<double>(apart_ms) / 1e3,
                  agent.clock_ahead_ms > 0 ? "ahead of" : "behind"),
      "let chrony or systemd-timesyncd set the clock: if two hosts store a key at the same time, "
      "the host whose clock is ahead wins"};
}

Verdict check_gpus(const HostFacts& host, const AgentFacts& agent) {
  const std::string name = "gpus";
  if (!agent.answered) return {name, Health::kOk, fmt::format("{} on this host", host.gpus), {}};
  if (agent.gpu_workers < host.gpus) {
    return {name, Health::kWarn,
            fmt::format("{} of {} have a worker (mc-gpu); clients of the others copy through host "
                        "memory themselves",
                        agent.gpu_workers, host.gpus),
            "systemctl enable --now mc-gpu@0 and so on, or gpus = \"auto\" without systemd; "
            "journalctl -u 'mc-gpu@*' tells why a worker ends"};
  }
  if (agent.own_copies_of.empty()) {
    return {name,
            Health::kOk,
            fmt::format("{} on this host, {} with a worker", host.gpus, agent.gpu_workers),
            {}};
  }
  const std::map<std::string_view, std::array<const char*, 2>> reasons{
      {"no_worker",
       {"no worker served the client's GPU",
        "systemctl status 'mc-gpu@*'; the client's GPU needs one"}},
      {"not_registered",
       {"the memory is not registered, or has changed since",
        "the client calls mc_register_memory() for the memory of its KV cache"}},
      {"not_shared",
       {"the driver does not share the memory with mc-gpu",
        "no MIG and no exclusive compute mode; in containers: PIDs that differ from the worker's; "
        "memory of cuMemCreate needs descriptors as a handle type"}},
      {"not_pinned",
       {"mc-gpu has not pinned that part of the pool",
        "wait until mcctl status shows the whole pool as pinned; LimitMEMLOCK=infinity in "
        "mc-gpu@.service"}}};
  const auto reason = reasons.find(agent.own_copies_because);
  if (reason == reasons.end())
    return {name, Health::kWarn, agent.own_copies_because, "mcctl status"};
  return {name, Health::kWarn,
          agent.own_copies_of + " copies GPU memory itself: " + reason->second[0],
          reason->second[1]};
}

Verdict check_transports(const HostFacts& host, const AgentFacts& agent) {
  const std::string name = "transports";
  if (!agent.answered) {
    return {name, Health::kWarn, "how bytes come from peers is unknown",
            "start mc-agent, then run this again"};
  }
  if (!agent.in_cluster) return {name, Health::kOk, "none: the agent is in no cluster", {}};
  const std::string& obstacles = agent.one_sided_obstacles;
  if (agent.one_sided.empty()) {
    const std::string finding = "TCP alone" + (obstacles.empty() ? "" : ": " + obstacles);
    if (obstacles.empty() || host.rdma_devices.empty()) return {name, Health::kOk, finding, {}};
    return {
        name, Health::kWarn, fmt::format("{}; this host has {}", finding, host.rdma_devices),
        "mend what is named, then restart the agent: it keeps its objects; if TCP is meant, say "
        "transports = \"tcp\""};
  }
  const std::string finding =
      fmt::format("TCP, and {} for large reads ({})", agent.one_sided, agent.one_sided_devices);
  if (obstacles.empty()) return {name, Health::kOk, finding, {}};
  return {name, Health::kWarn, finding + "; not used: " + obstacles,
          "mend what is named, then restart the agent: it keeps its objects; mcctl rails shows "
          "each way"};
}

}  // namespace mc::ctl
