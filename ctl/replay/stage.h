// SPDX-License-Identifier: Apache-2.0
//
// What it is: a cluster for the length of a replay: a master and some agents, each in a network
//   namespace of its own, joined by a bridge. Nothing of it reaches this host's network.
//
//     namespace of the master ── bridge ──┬── veth ── namespace of agent 0
//       mc-master 10.77.0.1               └── veth ── namespace of agent 1 …
//   Without root there are no namespaces: then all listen on loopback, and say so.
//   With as many processors as agents each agent has some of its own, as hosts have; the master
//   shares the last agent's.
// Threads: the main one. Owns: the processes, the namespaces, a directory; all gone with it.
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
  // pool_bytes: of each agent's own pool, which the replay does not use.
  static Result<std::unique_ptr<Stage>> open(unsigned agents, std::uint64_t timeout_ns);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::vector<std::string>& sockets() const { return sockets_; }
  // Of agent i, from 0: its network namespace (empty: this host's) and address.
  std::string net(unsigned agent) const { return net_of(agent + 1); }
  std::string address(unsigned agent) const {
    return namespaces_ ? "10.77.0." + std::to_string(agent + 2) : std::string("127.0.0.1");
  }
  bool has_namespaces() const { return namespaces_; }
  // Processors of agent i; empty: all have all.
  std::vector<int> processors(unsigned agent) const;

 private:
  Stage() = default;
  Status start(unsigned agents, std::uint64_t timeout_ns);
  Status make_namespaces(unsigned agents);
  Status launch(unsigned number, std::vector<std::string> words, const std::string& log);
  Status wait_until_joined(unsigned agents, std::uint64_t timeout_ns) const;
  std::string net_of(unsigned number) const;  // 0: the master's

  std::string directory_;
  std::string prefix_;  // of the namespaces' names
  bool namespaces_ = false;
  std::vector<std::string> made_;  // namespaces
  std::vector<pid_t> children_;
  std::vector<std::string> sockets_;
  unsigned agents_ = 0;
  std::vector<int> processors_;  // that we may use
};

// This thread, and what it starts, runs on no others. Empty: nothing changes.
void stay_on(const std::vector<int>& processors);

}  // namespace mc::ctl
