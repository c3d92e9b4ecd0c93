// SPDX-License-Identifier: Apache-2.0
//
// An agent's link to the master of a partition: the real MasterLink and MasterClient, on simulated links
//   and a simulated store. SimPort watches the versions that a master is told, and commits deliberate
//   bugs.
// Threads: The simulator's.
// Owns: The link.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/cluster/master/master_link.h"

namespace mc::sim {

class SimPort final : public agent::MasterPort {
 public:
  struct Faults {
    // A deliberate bug: confirms drops without dropping.
    bool lies_about_drops = false;
    // A deliberate bug: announces a few stripes as the whole object.
    bool takes_a_part_for_the_whole = false;
  };

  // orders outlives the port.
  SimPort(const metadata::MasterClientOptions& options, agent::MasterOrders& orders,
          metadata::MasterClient::Outside outside, const Faults& faults);
  ~SimPort() override;

  void poll() { link_->poll(); }
  // Reports say nothing more after the host's objects, and do not end.
  void never_end_reports(bool never) { reports_never_end_ = never; }
  // The latest version that this port has told a master.
  std::uint64_t latest_version() const { return latest_version_; }

  void publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns, Done<std::vector<metadata::Verdict>> done) override;
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              Done<metadata::LocateAnswer> done) override {
    link_->locate(request, deadline_ns, std::move(done));
  }
  void choose_holders(const metadata::wire::ChooseHolders& request, std::uint64_t deadline_ns,
                      Done<metadata::wire::ChooseHoldersAnswer> done) override {
    link_->choose_holders(request, deadline_ns, std::move(done));
  }
  void remove(const metadata::wire::Remove& request, std::uint64_t deadline_ns,
              Done<metadata::wire::RemoveReply> done) override {
    link_->remove(request, deadline_ns, std::move(done));
  }
  void remove_matching(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                       Done<metadata::wire::RemoveMatchingAnswer> done) override {
    link_->remove_matching(match, deadline_ns, std::move(done));
  }
  void list(const metadata::wire::Match& match, std::uint64_t deadline_ns,
            Done<metadata::wire::ListAnswer> done) override {
    link_->list(match, deadline_ns, std::move(done));
  }
  void members(std::uint64_t deadline_ns, Done<metadata::wire::MembersAnswer> done) override {
    link_->members(deadline_ns, std::move(done));
  }
  void stats(std::uint64_t deadline_ns, Done<metadata::wire::StatsAnswer> done) override {
    link_->stats(deadline_ns, std::move(done));
  }
  void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
             Done<metadata::wire::DrainAnswer> done) override {
    link_->drain(request, deadline_ns, std::move(done));
  }
  void relocate(const metadata::wire::Relocate& request, std::uint64_t deadline_ns,
                Done<metadata::wire::RelocationId> done) override {
    link_->relocate(request, deadline_ns, std::move(done));
  }
  void relocation(const metadata::wire::RelocationId& id, std::uint64_t deadline_ns,
                  Done<metadata::wire::RelocationAnswer> done) override {
    link_->relocation(id, deadline_ns, std::move(done));
  }
  void await_replicas(const metadata::wire::AwaitReplicas& request, std::uint64_t deadline_ns,
                      Done<metadata::wire::AwaitReplicasAnswer> done) override {
    link_->await_replicas(request, deadline_ns, std::move(done));
  }
  void report_unreachable(metadata::wire::Unreachable peer) override {
    link_->report_unreachable(peer);
  }
  void refresh_members() override { link_->refresh_members(); }
  std::uint64_t removals_seen() const override { return link_->removals_seen(); }
  std::uint64_t refused_up_to() const override { return link_->refused_up_to(); }
  std::uint64_t epoch() const override { return link_->epoch(); }
  const metadata::MemberList& member_list() const override { return link_->member_list(); }
  const std::string& leader() const override { return link_->leader(); }
  bool ready() const override { return link_->ready(); }
  const Status& trouble() const override { return link_->trouble(); }

 private:
  class Orders;
  void look_at(std::vector<metadata::PublishItem>& items);

  const Faults faults_;
  bool reports_never_end_ = false;
  std::uint64_t latest_version_ = 0;
  std::unique_ptr<Orders> orders_;
  std::unique_ptr<agent::MasterLink> link_;
};

}  // namespace mc::sim
