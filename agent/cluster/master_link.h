// SPDX-License-Identifier: Apache-2.0
//
// What it is: MasterPort over a MasterClient, which has a thread of its own: what it says is queued
//   and taken into the agent's loop by poll().
//
//     loop ── calls ──► MasterClient's thread ──► master
//     loop ◄── inbox, eventfd ── answers, orders ◄──┘
// Threads: the agent's loop; the client's thread only puts into the inbox. One of its calls waits
//   for the loop: the next part of a report, which only the loop can name.
// Owns: the client.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/cluster/master_port.h"
#include "libmc/base/fd.h"
#include "metadata/master/client/master_client.h"

namespace mc::agent {

class MasterLink final : public MasterPort, private metadata::AgentSide {
 public:
  // orders must outlive it. Errors: MC_INVALID_ARGUMENT, MC_NO_MEMORY.
  static Result<std::unique_ptr<MasterLink>> open(const metadata::MasterClientOptions& options,
                                                  MasterOrders& orders);
  ~MasterLink() override;

  int wait_fd() const { return event_.get(); }
  void poll();

  void publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
               std::uint64_t deadline_ns,
               MasterPort::Done<std::vector<metadata::Verdict>> done) override;
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              MasterPort::Done<metadata::LocateAnswer> done) override;
  void place(const metadata::wire::Place& request, std::uint64_t deadline_ns,
             MasterPort::Done<metadata::wire::PlaceAnswer> done) override;
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
  void report_unreachable(metadata::wire::Unreachable peer) override;
  std::uint64_t removals_seen() const override { return client_->removals_seen(); }
  std::uint64_t epoch() const override { return client_->epoch(); }
  bool ready() const override { return client_->ready(); }

 private:
  explicit MasterLink(MasterOrders& orders) : orders_(orders) {}
  // Runs in the loop, soon.
  void post(std::function<void()> what);
  // An answer's callback that runs in the loop.
  template <typename Answer>
  metadata::MasterClient::Done<Answer> in_loop(MasterPort::Done<Answer> done);

  // The client's thread.
  metadata::Load load() override;
  void next_report(bool first, std::vector<metadata::PublishItem>& items) override;
  void on_report_verdict(const metadata::PublishItem& item, metadata::Verdict verdict) override;
  void on_drop(const metadata::wire::Drop& order, AgentSide::Done done) override;
  void on_drop_matching(const metadata::wire::Match& match,
                        AgentSide::Reply<metadata::wire::RemoveMatchingAnswer> reply) override;
  void on_list(const metadata::wire::Match& match,
               AgentSide::Reply<metadata::wire::ListAnswer> reply) override;
  void on_copy(const metadata::wire::Copy& order, AgentSide::Done done) override;
  void on_fenced() override;

  MasterOrders& orders_;
  Fd event_;
  std::mutex mutex_;
  std::condition_variable reported_;
  std::vector<std::function<void()>> inbox_;
  bool closing_ = false;
  metadata::Load load_;  // as of the loop's last look
  std::vector<std::function<void()>> taken_;
  std::unique_ptr<metadata::MasterClient> client_;
};

}  // namespace mc::agent
