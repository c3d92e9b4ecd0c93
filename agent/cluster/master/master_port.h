// SPDX-License-Identifier: Apache-2.0
//
// The master of one partition of the keys, as the agent's loop sees the master:
//   requests whose answers come back into the loop, and orders that arrive there. MasterLink is the
//   implementation over the network; the simulator has another.
// Threads: The agent's loop, callbacks and MasterOrders included.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "metadata/master/client/master_client.h"

namespace mc::agent {

// The cluster's id of an agent. The transport has another NodeId.
using MemberId = metadata::NodeId;

// Orders of a master to this agent.
using MasterOrders = metadata::AgentSide;

class MasterPort {
 public:
  template <typename Answer>
  using Done = std::function<void(Result<Answer>)>;

  virtual ~MasterPort() = default;
  virtual void publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
                       std::uint64_t deadline_ns, Done<std::vector<metadata::Verdict>> done) = 0;
  virtual void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
                      Done<metadata::LocateAnswer> done) = 0;
  virtual void choose_holders(const metadata::wire::ChooseHolders& request,
                              std::uint64_t deadline_ns,
                              Done<metadata::wire::ChooseHoldersAnswer> done) = 0;
  virtual void remove(const metadata::wire::Remove& request, std::uint64_t deadline_ns,
                      Done<metadata::wire::RemoveReply> done) = 0;
  virtual void remove_matching(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                               Done<metadata::wire::RemoveMatchingAnswer> done) = 0;
  virtual void list(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                    Done<metadata::wire::ListAnswer> done) = 0;
  virtual void members(std::uint64_t deadline_ns, Done<metadata::wire::MembersAnswer> done) = 0;
  virtual void stats(std::uint64_t deadline_ns, Done<metadata::wire::StatsAnswer> done) = 0;
  virtual void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
                     Done<metadata::wire::DrainAnswer> done) = 0;
  virtual void relocate(const metadata::wire::Relocate& request, std::uint64_t deadline_ns,
                        Done<metadata::wire::RelocationId> done) = 0;
  virtual void relocation(const metadata::wire::RelocationId& id, std::uint64_t deadline_ns,
                          Done<metadata::wire::RelocationAnswer> done) = 0;
  virtual void await_replicas(const metadata::wire::AwaitReplicas& request,
                              std::uint64_t deadline_ns,
                              Done<metadata::wire::AwaitReplicasAnswer> done) = 0;
  virtual void report_unreachable(metadata::wire::Unreachable peer) = 0;
  // Asks the master for changes of the list of members.
  virtual void refresh_members() = 0;

  [[nodiscard]] virtual std::uint64_t removals_seen() const = 0;
  // The latest version that made the master refuse a published object as too old. A put is accepted
  // only with a later version.
  [[nodiscard]] virtual std::uint64_t refused_up_to() const = 0;
  [[nodiscard]] virtual std::uint64_t epoch() const = 0;
  [[nodiscard]] virtual const metadata::MemberList& member_list() const = 0;
  // The agent has joined and has reported all objects of the partition.
  [[nodiscard]] virtual bool ready() const = 0;
  // As MasterClient::trouble().
  [[nodiscard]] virtual const Status& trouble() const = 0;
  // For a request about a key while the port is not ready, or that the leader does not answer.
  [[nodiscard]] mc_status away() const { return trouble().ok() ? MC_NO_MASTER : trouble().code(); }
  // Address of the current or candidate leader; empty if unknown.
  [[nodiscard]] virtual const std::string& leader() const = 0;
};

}  // namespace mc::agent
