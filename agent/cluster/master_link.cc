// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/master_link.h"

namespace mc::agent {

namespace wire = metadata::wire;

Result<std::unique_ptr<MasterLink>> MasterLink::open(const metadata::MasterClientOptions& options,
                                                     MasterOrders& orders) {
  auto link = std::unique_ptr<MasterLink>(new MasterLink(orders));
  auto event = make_eventfd();
  if (!event) return fail(event.error());
  link->event_ = std::move(*event);
  link->load_ = orders.load();
  auto client = metadata::MasterClient::create(options, link.get());
  if (!client) return fail(client.error());
  link->client_ = std::move(*client);
  return link;
}

MasterLink::~MasterLink() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  reported_.notify_all();
  client_.reset();
}

void MasterLink::post(std::function<void()> what) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    first = inbox_.empty();
    inbox_.push_back(std::move(what));
  }
  if (first) signal_eventfd(event_.get());
}

void MasterLink::poll() {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.empty()) return;
    drain_eventfd(event_.get());
    taken_.swap(inbox_);
    load_ = orders_.load();
  }
  for (const auto& what : taken_) what();
  taken_.clear();
}

template <typename Answer>
metadata::MasterClient::Done<Answer> MasterLink::in_loop(MasterPort::Done<Answer> done) {
  return [this, done = std::move(done)](Result<Answer> answer) {
    post([done, answer = std::move(answer)] { done(answer); });
  };
}

void MasterLink::publish(std::vector<metadata::PublishItem> items, std::uint64_t removals_seen,
                         std::uint64_t deadline_ns,
                         MasterPort::Done<std::vector<metadata::Verdict>> done) {
  client_->publish(std::move(items), removals_seen, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::locate(const wire::Locate& request, std::uint64_t deadline_ns,
                        MasterPort::Done<metadata::LocateAnswer> done) {
  client_->locate(request, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::place(const wire::Place& request, std::uint64_t deadline_ns,
                       MasterPort::Done<wire::PlaceAnswer> done) {
  client_->place(request, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::remove(const wire::Remove& request, std::uint64_t deadline_ns,
                        MasterPort::Done<wire::RemoveReply> done) {
  client_->remove(request, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::remove_matching(const wire::Match& match, std::uint64_t deadline_ns,
                                 MasterPort::Done<wire::RemoveMatchingAnswer> done) {
  client_->remove_matching(match, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::list(const wire::Match& match, std::uint64_t deadline_ns,
                      MasterPort::Done<wire::ListAnswer> done) {
  client_->list(match, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::members(std::uint64_t deadline_ns, MasterPort::Done<wire::MembersAnswer> done) {
  client_->members(deadline_ns, in_loop(std::move(done)));
}
void MasterLink::stats(std::uint64_t deadline_ns, MasterPort::Done<wire::StatsAnswer> done) {
  client_->stats(deadline_ns, in_loop(std::move(done)));
}
void MasterLink::drain(const wire::Drain& request, std::uint64_t deadline_ns,
                       MasterPort::Done<wire::DrainAnswer> done) {
  client_->drain(request, deadline_ns, in_loop(std::move(done)));
}
void MasterLink::report_unreachable(wire::Unreachable peer) { client_->report_unreachable(peer); }

metadata::Load MasterLink::load() {
  const std::lock_guard lock(mutex_);
  return load_;
}

void MasterLink::next_report(bool first, std::vector<metadata::PublishItem>& items) {
  struct Part {
    bool ready = false;
    std::vector<metadata::PublishItem> items;
  };
  const auto part = std::make_shared<Part>();
  post([this, part, first] {
    std::vector<metadata::PublishItem> named;
    orders_.next_report(first, named);
    {
      const std::lock_guard lock(mutex_);
      part->items = std::move(named);
      part->ready = true;
    }
    reported_.notify_all();
  });
  std::unique_lock lock(mutex_);
  reported_.wait(lock, [&] { return part->ready || closing_; });
  items = std::move(part->items);
}

void MasterLink::on_report_verdict(const metadata::PublishItem& item, metadata::Verdict verdict) {
  post([this, item, verdict] { orders_.on_report_verdict(item, verdict); });
}
void MasterLink::on_drop(const wire::Drop& order, AgentSide::Done done) {
  post([this, order, done = std::move(done)] { orders_.on_drop(order, done); });
}
void MasterLink::on_drop_matching(const wire::Match& match,
                                  AgentSide::Reply<wire::RemoveMatchingAnswer> reply) {
  post([this, match, reply = std::move(reply)] { orders_.on_drop_matching(match, reply); });
}
void MasterLink::on_list(const wire::Match& match, AgentSide::Reply<wire::ListAnswer> reply) {
  post([this, match, reply = std::move(reply)] { orders_.on_list(match, reply); });
}
void MasterLink::on_copy(const wire::Copy& order, AgentSide::Done done) {
  post([this, order, done = std::move(done)] { orders_.on_copy(order, done); });
}
void MasterLink::on_fenced() {
  post([this] { orders_.on_fenced(); });
}

}  // namespace mc::agent
