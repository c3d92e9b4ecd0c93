// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/master/master_link.h"

namespace mc::agent {

namespace wire = metadata::wire;

Result<std::unique_ptr<MasterLink>> MasterLink::open(const metadata::MasterClientOptions& options,
                                                     MasterOrders& orders) {
  auto link = std::unique_ptr<MasterLink>(new MasterLink());
  auto client =
      metadata::MasterClient::create(options, &orders, metadata::MasterClient::Drive::kCaller);
  if (!client) return fail(client.error());
  link->client_ = std::move(*client);
  return link;
}

Result<std::unique_ptr<MasterLink>> MasterLink::open_simulated(
    const metadata::MasterClientOptions& options, MasterOrders& orders,
    metadata::MasterClient::Outside outside) {
  auto link = std::unique_ptr<MasterLink>(new MasterLink());
  auto client = metadata::MasterClient::create_simulated(options, &orders, std::move(outside));
  if (!client) return fail(client.error());
  link->client_ = std::move(*client);
  return link;
}

MasterLink::~MasterLink() { closing_ = true; }

template <typename Answer>
metadata::MasterClient::Done<Answer> MasterLink::unless_closing(MasterPort::Done<Answer> done) {
  return [this, done = std::move(done)](Result<Answer> answer) {
    if (!closing_) done(std::move(answer));
  };
}

void MasterLink::publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
                         std::uint64_t deadline_ns,
                         MasterPort::Done<std::vector<metadata::Verdict>> done) {
  client_->publish(std::move(items), removals_seen, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::locate(const wire::Locate& request, std::uint64_t deadline_ns,
                        MasterPort::Done<metadata::LocateAnswer> done) {
  client_->locate(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::choose_holders(const wire::ChooseHolders& request, std::uint64_t deadline_ns,
                                MasterPort::Done<wire::ChooseHoldersAnswer> done) {
  client_->choose_holders(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::remove(const wire::Remove& request, std::uint64_t deadline_ns,
                        MasterPort::Done<wire::RemoveReply> done) {
  client_->remove(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                                 MasterPort::Done<wire::RemoveMatchingAnswer> done) {
  client_->remove_matching(match, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::list(const wire::Match& match, std::uint64_t deadline_ns,
                      MasterPort::Done<wire::ListAnswer> done) {
  client_->list(match, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::members(std::uint64_t deadline_ns, MasterPort::Done<wire::MembersAnswer> done) {
  client_->members(deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::stats(std::uint64_t deadline_ns, MasterPort::Done<wire::StatsAnswer> done) {
  client_->stats(deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::drain(const wire::Drain& request, std::uint64_t deadline_ns,
                       MasterPort::Done<wire::DrainAnswer> done) {
  client_->drain(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::relocate(const wire::Relocate& request, std::uint64_t deadline_ns,
                          MasterPort::Done<wire::RelocationId> done) {
  client_->relocate(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::relocation(const wire::RelocationId& id, std::uint64_t deadline_ns,
                            MasterPort::Done<wire::RelocationAnswer> done) {
  client_->relocation(id, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::await_replicas(const wire::AwaitReplicas& request, std::uint64_t deadline_ns,
                                MasterPort::Done<wire::AwaitReplicasAnswer> done) {
  client_->await_replicas(request, deadline_ns, unless_closing(std::move(done)));
}
void MasterLink::report_unreachable(wire::Unreachable peer) { client_->report_unreachable(peer); }

}  // namespace mc::agent
