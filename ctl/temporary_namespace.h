// SPDX-License-Identifier: Apache-2.0
//
// A namespace for one measurement in an agent, with the state that the agent reports. The
//   destructor drops the namespace. If mcctl dies, the agent drops the namespace, except in a cluster.
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

// Of any namespace; nullopt if the agent does not answer or has no such namespace.
std::optional<NamespaceState> state_of_namespace(const std::string& agent_socket,
                                                 const std::string& name, std::uint64_t timeout_ns);

class TemporaryNamespace {
 public:
  static Result<TemporaryNamespace> create(const std::string& agent_socket,
                                           const NamespacePlan& plan, std::uint64_t timeout_ns);
  TemporaryNamespace(TemporaryNamespace&& other) noexcept;
  TemporaryNamespace& operator=(TemporaryNamespace&&) = delete;
  TemporaryNamespace(const TemporaryNamespace&) = delete;
  TemporaryNamespace& operator=(const TemporaryNamespace&) = delete;
  ~TemporaryNamespace();

  std::optional<NamespaceState> state() const {
    return state_of_namespace(socket_, name_, timeout_ns_);
  }
  // Returns when the pool has its size, cannot get it, or timeout_ns has passed. Until then, the
  // agent allocates memory while it serves clients.
  void wait_until_grown(std::uint64_t timeout_ns) const;
  Status drop();  // once; later calls do nothing

 private:
  TemporaryNamespace(std::string socket, std::string name, std::uint64_t timeout_ns);

  std::string socket_;
  std::string name_;  // empty: dropped
  std::uint64_t timeout_ns_;
};

}  // namespace mc::ctl
