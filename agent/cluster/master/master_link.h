// SPDX-License-Identifier: Apache-2.0
//
// MasterPort over a MasterClient that the agent's loop drives.
// Threads: The agent's loop.
// Owns: The client.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "agent/cluster/master/master_port.h"

namespace mc::agent {

class MasterLink final : public MasterPort {
 public:
  // orders must outlive the link. Errors: MC_INVALID_ARGUMENT, MC_NO_MEMORY.
  static Result<std::unique_ptr<MasterLink>> open(const metadata::MasterClientOptions& options,
                                                  MasterOrders& orders);
  static Result<std::unique_ptr<MasterLink>> open_simulated(
      const metadata::MasterClientOptions& options, MasterOrders& orders,
      metadata::MasterClient::Outside outside);
  ~MasterLink() override;

  // Ends all open requests and calls the callbacks. No other function may be called afterwards.
  void end() { client_.reset(); }

  int wait_fd() const { return client_->wait_fd(); }
  // True: a message came from the master or went to the master.
  bool poll() { return client_->poll(); }
  std::uint64_t next_poll_ns() const { return client_->next_poll_ns(); }

  void publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns,
               MasterPort::Done<std::vector<metadata::Verdict>> done) override;
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              MasterPort::Done<metadata::LocateAnswer> done) override;
  void choose_holders(const metadata::wire::ChooseHolders& request, std::uint64_t deadline_ns,
                      MasterPort::Done<metadata::wire::ChooseHoldersAnswer> done) override;
  void remove(const metadata::wire::Remove& request, std::uint64_t deadline_ns,
              MasterPort::Done<metadata::wire::RemoveReply> done) override;
  void remove_matching(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                       MasterPort::Done<metadata::wire::RemoveMatchingAnswer> done) override;
  void list(const metadata::wire::Match& match, std::uint64_t deadline_ns,
            MasterPort::Done<metadata::wire::ListAnswer> done) override;
  void members(std::uint64_t deadline_ns,
               MasterPort::Done<metadata::wire::MembersAnswer> done) override;
  void stats(std::uint64_t deadline_ns,
             MasterPort::Done<metadata::wire::StatsAnswer> done) override;
  void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
             MasterPort::Done<metadata::wire::DrainAnswer> done) override;
  void relocate(const metadata::wire::Relocate& request, std::uint64_t deadline_ns,
                MasterPort::Done<metadata::wire::RelocationId> done) override;
  void relocation(const metadata::wire::RelocationId& id, std::uint64_t deadline_ns,
                  MasterPort::Done<metadata::wire::RelocationAnswer> done) override;
  void await_replicas(const metadata::wire::AwaitReplicas& request, std::uint64_t deadline_ns,
                      MasterPort::Done<metadata::wire::AwaitReplicasAnswer> done) override;
  void report_unreachable(metadata::wire::Unreachable peer) override;
  void refresh_members() override { client_->refresh_members(); }
  std::uint64_t removals_seen() const override { return client_->removals_seen(); }
  std::uint64_t refused_up_to() const override { return client_->refused_up_to(); }
  std::uint64_t epoch() const override { return client_->epoch(); }
  const metadata::MemberList& member_list() const override { return client_->member_list(); }
  bool ready() const override { return client_->ready(); }
  const Status& trouble() const override { return client_->trouble(); }
  const std::string& leader() const override { return client_->leader(); }

 private:
  MasterLink() = default;
  // Requests that end because the link is destroyed call no callback.
  template <typename Answer>
  metadata::MasterClient::Done<Answer> unless_closing(MasterPort::Done<Answer> done);

  bool closing_ = false;
  std::unique_ptr<metadata::MasterClient> client_;
};

}  // namespace mc::agent
