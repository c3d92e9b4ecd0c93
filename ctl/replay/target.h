// SPDX-License-Identifier: Apache-2.0
//
// The namespace that a replay creates in an agent, and the state of that namespace as the
//   agent reports it. The destructor drops the namespace.
// Threads: the main thread.
// Owns: the namespace in the agent.
// Trusts: nothing in the agent's answers; a missing field is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mc/status.h"

namespace mc::ctl {

struct NamespacePlan {
  std::string name;
  std::uint64_t pool_bytes = 0;
  std::uint64_t capacity_bytes = 0;  // 0: unlimited
  std::string policy;
  bool clustered = false;  // shared with the agent's cluster
};

struct NamespaceState {
  std::string policy;
  std::uint64_t objects = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t evictions = 0;
};

class ReplayNamespace {
 public:
  static Result<ReplayNamespace> create(const std::string& agent_socket, const NamespacePlan& plan,
                                        std::uint64_t timeout_ns);
  ReplayNamespace(ReplayNamespace&& other) noexcept;
  ReplayNamespace& operator=(ReplayNamespace&&) = delete;
  ReplayNamespace(const ReplayNamespace&) = delete;
  ReplayNamespace& operator=(const ReplayNamespace&) = delete;
  ~ReplayNamespace();

  std::optional<NamespaceState> state() const;
  // Returns when the pool has its size, cannot get it, or timeout_ns has passed. Until then, the
  // agent allocates memory while it serves clients.
  void wait_until_grown(std::uint64_t timeout_ns) const;
  Status drop();  // once; later calls do nothing

 private:
  ReplayNamespace(std::string socket, std::string name, std::uint64_t timeout_ns);

  std::string socket_;
  std::string name_;  // empty: dropped
  std::uint64_t timeout_ns_;
};

}  // namespace mc::ctl
