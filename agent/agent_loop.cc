// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_loop.h"

#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libmc/base/clock.h"
#include "shm/doorbell.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kTickNs = 100000000;
constexpr std::uint64_t kRetryNs = 200000;
constexpr std::uint64_t kIdleAgentNs = 300000000;
// A look at the clock costs as much as several looks at a ring, and a system call costs as much as
// a put. A spinning loop therefore does neither in every round.
constexpr unsigned kRoundsBetweenClocks = 16;
constexpr unsigned kRoundsBetweenPolls = 4;
constexpr std::uint64_t kEventsPeriodNs = 50000;
constexpr std::uint64_t kYieldPeriodNs = 5000;
// After a step of a shrink or of the tier, clients have the loop for this many times as long as the step took.
constexpr std::uint64_t kStepPause = 3;

}  // namespace

[[gnu::hot]] Status AgentLoop::run() {
  using Cause = LoopTimes::Cause;
  std::uint64_t now = now_ns();
  std::uint64_t looked_ns = now;
  last_work_ns_ = now;
  bool worked = false, requested = false;
  for (unsigned rounds = 1; !stop_; ++rounds) {
    namespaces_.tell_core(CoreSharing::here(), channels_.several());
    const bool served = channels_.serve(server_, now);
    if (server_.wants_turn()) server_.retry_waiting(now);
    if (cluster_ != nullptr && (served || rounds % kRoundsBetweenPolls == 0))
      worked |= turn_to_cluster(now, served);
    publish_wakes();
    requested |= served || server_.wants_turn();
    worked |= requested;
    // A round with a step of a large request is long enough to justify a look at the clock and the
    // events.
    if (rounds % kRoundsBetweenClocks != 0 && !server_.wants_turn()) {
      if (!served) cpu_relax();
      continue;
    }
    now = now_ns();
    if (worked) {
      last_work_ns_ = now;
      times_.add(requested ? Cause::kRequests : Cause::kPeers, now - looked_ns);
    }
    now = do_periodic_work(now);
    if (!worked && !spin(now)) {
      const bool looked = sleep_until_event(now);
      now = now_ns();
      if (looked) next_events_ns_ = now + kEventsPeriodNs;
    }
    looked_ns = now;
    worked = requested = false;
  }
  return end_;
}

// Returns false if there was no work.
bool AgentLoop::poll_cluster(std::uint64_t now) {
  const bool worked = cluster_->poll(now);
  cluster_->advance(now);
  if (!cluster_->fenced().ok()) {
    end_ = cluster_->fenced();
    stop();
  }
  return worked;
}

// Reads the messages of peers and masters, and sends the messages of the last round. Returns true
// while there is traffic.
bool AgentLoop::turn_to_cluster(std::uint64_t now, bool served) {
  cluster_->advance(now);
  bool lively = cluster_->lively(now);
  if (lively || now >= cluster_->next_poll_ns()) {
    const bool worked = poll_cluster(now);
    // The sender of the expected message may be waiting for this core.
    if (!worked && lively && !served) lively = core_.yield();
  }
  if (cluster_->take_ended()) server_.finish_remote_requests(now);
  return lively;
}

void AgentLoop::on_cluster_event() {
  const std::uint64_t now = now_ns();
  poll_cluster(now);
  if (cluster_->take_ended()) server_.finish_remote_requests(now);
}

// Runs whether the rings are busy or not. Returns the time.
[[gnu::hot]] std::uint64_t AgentLoop::do_periodic_work(std::uint64_t now) {
  // A request that wants its turn was retried in this round already.
  if (server_.anything_waits() && !server_.wants_turn() && now >= next_retry_ns_) {
    server_.retry_waiting(now);
    publish_wakes();
    next_retry_ns_ = now + kRetryNs;
  }
  if (now >= next_tick_ns_) {
    tick(now);
    const std::uint64_t end_ns = now_ns();
    times_.add(LoopTimes::Cause::kTick, end_ns - now);
    now = end_ns;
  }
  if (namespaces_.shrinks() && now >= next_shrink_ns_) now = shrink_some(now);
  if (tier_ != nullptr) {
    if (tiered_pools_->take_new_work()) schedule_tier(now);
    if (now >= next_tier_ns_) now = work_on_tier(now);
    if (leave_by_ns_ != 0 && now >= next_writes_ns_) now = write_pools(now);
  }
  if (now >= next_idle_check_ns_) {
    channels_.put_idle_to_sleep(now);
    next_idle_check_ns_ = now + ActiveChannels::kIdleNs;
  }
  if (now >= next_events_ns_) {
    handle_events(0);
    next_events_ns_ = now + kEventsPeriodNs;
  }
  return now;
}

// Returns the time.
std::uint64_t AgentLoop::shrink_some(std::uint64_t now) {
  namespaces_.shrink_some();
  const std::uint64_t end_ns = now_ns();
  times_.add(LoopTimes::Cause::kTick, end_ns - now);
  next_shrink_ns_ = end_ns + kStepPause * (end_ns - now);
  return end_ns;
}

void AgentLoop::schedule_tier(std::uint64_t now) {
  const std::uint64_t next = std::min(tiered_pools_->next_ns(), now + kTickNs);
  next_tier_ns_ = std::min(next_tier_ns_, std::max(next, tier_pause_ns_));
}

// One step of each disk's log, and of the requests that wait for it. Returns the time.
std::uint64_t AgentLoop::work_on_tier(std::uint64_t now) {
  tier_->do_work(now);
  const bool ended = tiered_pools_->advance(now);
  // The end of a drop settles requests of the cluster.
  const bool cluster_ended = cluster_ != nullptr && cluster_->take_ended();
  if (ended || cluster_ended) server_.finish_remote_requests(now);
  const std::uint64_t end_ns = now_ns();
  times_.add(LoopTimes::Cause::kTier, end_ns - now);
  tier_pause_ns_ = end_ns + kStepPause * (end_ns - now);
  next_tier_ns_ = UINT64_MAX;
  schedule_tier(end_ns);
  return end_ns;
}

// Returns the time.
std::uint64_t AgentLoop::write_pools(std::uint64_t now) {
  const bool more = tiered_pools_->write_pools();
  if (!more || now >= leave_by_ns_) stop();
  const std::uint64_t end_ns = now_ns();
  times_.add(LoopTimes::Cause::kTier, end_ns - now);
  next_writes_ns_ = end_ns + std::max(kRetryNs, kStepPause * (end_ns - now));
  return end_ns;
}

void AgentLoop::handle_events(int timeout_ms) {
  const std::uint64_t busy_ns = events_.handle(timeout_ms);
  if (busy_ns != 0) times_.add(LoopTimes::Cause::kEvents, busy_ns);
}

// Returns false if there was no work for long enough to sleep.
bool AgentLoop::spin(std::uint64_t now) {
  const bool lively = (cluster_ != nullptr && cluster_->lively(now)) || namespaces_.shrinks();
  const bool idle = now - last_work_ns_ >= options_.spin_us * std::uint64_t{1000};
  if (!lively && (channels_.empty() || idle)) return false;
  if (now < next_yield_ns_) return true;
  // A client with new work may be waiting for this core.
  next_yield_ns_ = now + kYieldPeriodNs;
  return core_.yield();
}

// A single fence serves all completions of the round. Then the sleeping clients are woken.
[[gnu::hot]] void AgentLoop::publish_wakes() {
  std::vector<Server::Answered>& answered = server_.answered();
  if (answered.empty()) return;
  shm::full_fence();
  for (const Server::Answered& at : answered) {
    ChannelState& channel = at.session->channels[at.channel];
    channel.needs_wake = false;
    if (shm::wake_client(channel.shared->header)) signal_eventfd(at.session->client_event.get());
  }
  // The client that woke the agent may be waiting for its answer on this core.
  if (std::exchange(woken_, false)) ::sched_yield();
  // Work that the answers did not have to wait for.
  for (const Server::Answered& at : answered) at.session->tenant->store->catch_up();
  answered.clear();
}

// Returns false if there is work; then no event was handled.
bool AgentLoop::sleep_until_event(std::uint64_t now) {
  publish_wakes();  // answers to requests that an event has completed since the round
  if (!channels_.put_all_to_sleep()) return false;
  std::uint64_t until = server_.anything_waits() ? now + kRetryNs * 5 : next_tick_ns_;
  if (cluster_ != nullptr) until = std::min(until, cluster_->next_poll_ns());
  if (namespaces_.shrinks()) until = std::min(until, next_shrink_ns_);
  if (tier_ != nullptr) {
    if (tiered_pools_->take_new_work()) schedule_tier(now);
    until = std::min(until, next_tier_ns_);
    if (leave_by_ns_ != 0) until = std::min(until, next_writes_ns_);
  }
  const std::uint64_t wait_ns = until > now ? until - now : 0;
  handle_events(static_cast<int>((wait_ns + 999999) / 1000000));
  woken_ = true;
  return true;
}

void AgentLoop::tick(std::uint64_t now) {
  next_tick_ns_ = now + kTickNs;
  sessions_.take_notes();
  namespaces_.tick(now, now - last_work_ns_ > kIdleAgentNs);
  if (server_.anything_away()) server_.finish_remote_requests(now);
  control_.ask_for_reservation_cache(now);
  every_tick_(now);
}

}  // namespace mc::agent
