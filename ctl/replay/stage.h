// SPDX-License-Identifier: Apache-2.0
//
// A cluster that exists only for a replay: a master and some agents, each in its own
//   network namespace, joined by a bridge. The cluster does not touch the network of this host.
//
//     namespace of the master ── bridge ──┬── veth ── namespace of agent 0
//       mc-master 10.77.0.1               └── veth ── namespace of agent 1 …
//
//   Without root there are no namespaces: then all processes listen on loopback, and mcctl tells
//   so. If there are at least as many processors as agents, each agent has its own processors, as
//   hosts have. The master shares the processors of the last agent.
// Threads: the main thread.
// Owns: the processes, the namespaces and a directory; the destructor removes all three.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "mc/status.h"

namespace mc::ctl {

inline constexpr unsigned kMaxStageAgents = 16;

class Stage {
 public:
  // pool_bytes: size of each agent's default pool, which the replay does not use.
  static Result<std::unique_ptr<Stage>> open(unsigned agents, std::uint64_t timeout_ns);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::vector<std::string>& sockets() const { return sockets_; }
  // The network namespace (empty: that of this host) and the address of agent i, counted from 0.
  std::string net(unsigned agent) const { return net_of(agent + 1); }
  std::string address(unsigned agent) const {
    return namespaces_ ? "10.77.0." + std::to_string(agent + 2) : std::string("127.0.0.1");
  }
  bool has_namespaces() const { return namespaces_; }
  // Processors of agent i; empty: each agent may use all processors.
  std::vector<int> processors(unsigned agent) const;

 private:
  Stage() = default;
  Status start(unsigned agents, std::uint64_t timeout_ns);
  Status make_namespaces(unsigned agents);
  Status launch(unsigned number, std::vector<std::string> words, const std::string& log);
  Status wait_until_joined(unsigned agents, std::uint64_t timeout_ns) const;
  std::string net_of(unsigned number) const;  // 0: the master's

  std::string directory_;
  std::string prefix_;  // of the names of the namespaces
  bool namespaces_ = false;
  std::vector<std::string> made_;  // namespaces
  std::vector<pid_t> children_;
  std::vector<std::string> sockets_;
  unsigned agents_ = 0;
  std::vector<int> processors_;  // that this process may use
};

}  // namespace mc::ctl
