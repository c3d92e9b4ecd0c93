// SPDX-License-Identifier: Apache-2.0
//
// The agent's loop: serves rings while work arrives, spins for a short time, then sleeps in epoll.
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>

#include <algorithm>

#include "agent/admin/admin.h"
#include "agent/agent.h"
#include "libmc/base/clock.h"
#include "shm/doorbell.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kTickNs = 100000000;
constexpr std::uint64_t kCountersPeriodNs = 1000000000;
constexpr std::uint64_t kRetryNs = 200000;
constexpr std::uint64_t kIdleChannelNs = 1000000;
constexpr std::uint64_t kIdleAgentNs = 300000000;
// One look at the clock costs as much as several looks at a ring, and a system call costs as much
// as a put. A spinning loop therefore does neither in every round.
constexpr unsigned kRoundsBetweenClocks = 16;
constexpr unsigned kRoundsBetweenPolls = 4;
constexpr std::uint64_t kEventsPeriodNs = 50000;
constexpr std::uint64_t kYieldPeriodNs = 5000;

}  // namespace

[[gnu::hot]] void Agent::run() {
  std::uint64_t now = now_ns();
  last_work_ns_ = now;
  Turns turns;
  bool worked = false;
  for (unsigned rounds = 1; !stop_.load(std::memory_order_relaxed); ++rounds) {
    tell_core();
    const bool served = serve_rings(now);
    if (server_.wants_turn()) server_.retry_waiting(now);
    if (cluster_ && (served || rounds % kRoundsBetweenPolls == 0))
      worked |= turn_to_cluster(now, served);
    publish_wakes();
    worked |= served || server_.wants_turn();
    // A round with a step of a large request is long enough to justify a look at the clock and the
    // events.
    if (rounds % kRoundsBetweenClocks != 0 && !server_.wants_turn()) {
      if (!served) cpu_relax();
      continue;
    }
    now = now_ns();
    if (worked) last_work_ns_ = now;
    take_turns(now, turns);
    if (!worked && !spin(now, turns)) {
      const bool looked = sleep_until_event(now);
      now = now_ns();
      if (looked) turns.next_events_ns = now + kEventsPeriodNs;
    }
    worked = false;
  }
  counters_page_.write(Admin(*this).counters_text());
  if (!keep_.load()) {
    if (Status status = descriptors_->drop_all(); !status.ok()) {
      spdlog::warn("event=drop_all_failed cause=\"{}\"", status.to_string());
    }
  }
}

// A client on the same processor yields instead of spinning.
[[gnu::hot]] void Agent::tell_core() {
  const std::uint32_t core = CoreSharing::here();
  if (core == told_core_) return;
  told_core_ = core;
  for (auto& [name, tenant] : tenants_) {
    tenant->store->index().header().agent_core.store_relaxed(core);
  }
}

// Reads the messages of peers and masters, and sends the messages of the last round. Returns true
// while there is traffic.
bool Agent::turn_to_cluster(std::uint64_t now, bool served) {
  cluster_->flush(now);
  const bool lively = cluster_->lively(now);
  if (lively || now >= cluster_->next_poll_ns()) {
    const bool worked = cluster_->poll(now);
    cluster_->flush(now);
    // The sender of the expected message may be waiting for this core.
    if (!worked && lively && !served) core_.yield();
  }
  if (cluster_->take_ended()) server_.finish_remote_requests(now);
  return lively;
}

// Does the periodic work, whether the rings are busy or not.
[[gnu::hot]] void Agent::take_turns(std::uint64_t now, Turns& turns) {
  // A request that wants its turn was retried in this round already.
  if (server_.anything_waits() && !server_.wants_turn() && now >= turns.next_retry_ns) {
    server_.retry_waiting(now);
    publish_wakes();
    turns.next_retry_ns = now + kRetryNs;
  }
  if (now >= next_tick_ns_) tick(now);
  if (now >= turns.next_idle_check_ns) {
    put_idle_channels_to_sleep(now);
    turns.next_idle_check_ns = now + kIdleChannelNs;
  }
  if (now >= turns.next_events_ns) {
    handle_events(0);
    turns.next_events_ns = now + kEventsPeriodNs;
  }
}

// Returns false if there was no work for long enough to sleep.
bool Agent::spin(std::uint64_t now, Turns& turns) {
  const bool lively = cluster_ && cluster_->lively(now);
  const bool idle = now - last_work_ns_ >= options_.spin_us * std::uint64_t{1000};
  if (!lively && (active_.empty() || idle)) return false;
  if (now < turns.next_yield_ns) return true;
  // A client with new work may be waiting for this core.
  turns.next_yield_ns = now + kYieldPeriodNs;
  return core_.yield();
}

void Agent::stop(bool keep) {
  keep_ = keep;
  stop_ = true;
  signal_eventfd(wake_.get());
}

// ---- Rings --------------------------------------------------------------------------------------

[[gnu::hot]] bool Agent::serve_rings(std::uint64_t now) {
  bool worked = false;
  for (const Active& active : active_) {
    if (!server_.serve(*active.session, active.channel)) continue;
    active.session->channels[active.channel].last_work_ns = now;
    worked = true;
  }
  return worked;
}

// One fence serves all completions of the round. Then the sleeping clients are woken.
[[gnu::hot]] void Agent::publish_wakes() {
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

[[gnu::hot]] void Agent::activate(Session& session, std::uint32_t number) {
  ChannelState& channel = session.channels[number];
  if (!channel.open || channel.active) return;
  channel.active = true;
  channel.last_work_ns = now_ns();
  shm::announce_agent_awake(channel.shared->header);
  active_.push_back({&session, number});
}

void Agent::deactivate_all(Session& session) {
  std::erase_if(active_, [&](const Active& active) { return active.session == &session; });
  for (ChannelState& channel : session.channels) channel.active = false;
}

// Removes idle channels from the polled set. From then on the clients of these channels ring the
// bell.
void Agent::put_idle_channels_to_sleep(std::uint64_t now) {
  const auto idle = [&](const Active& active) {
    return now - active.session->channels[active.channel].last_work_ns > kIdleChannelNs;
  };
  if (std::none_of(active_.begin(), active_.end(), idle)) return;
  for (const Active& active : active_) {
    if (idle(active)) {
      shm::announce_agent_sleep(active.session->channels[active.channel].shared->header);
    }
  }
  shm::heavy_fence();
  std::erase_if(active_, [&](const Active& active) {
    ChannelState& channel = active.session->channels[active.channel];
    if (!idle(active)) return false;
    if (!channel.requests.has_record()) {
      channel.active = false;
      return true;
    }
    shm::announce_agent_awake(channel.shared->header);
    return false;
  });
}

// Announces sleep on all channels and looks at all rings once more. Returns false if there is work.
bool Agent::prepare_sleep() {
  if (active_.empty()) return true;
  for (const Active& active : active_) {
    shm::announce_agent_sleep(active.session->channels[active.channel].shared->header);
  }
  shm::heavy_fence();
  bool work = false;
  for (const Active& active : active_) {
    work |= active.session->channels[active.channel].requests.has_record();
  }
  if (!work) {
    for (const Active& active : active_) active.session->channels[active.channel].active = false;
    active_.clear();
    return true;
  }
  for (const Active& active : active_) {
    shm::announce_agent_awake(active.session->channels[active.channel].shared->header);
  }
  return false;
}

// Returns false if there is work; then no event was handled.
bool Agent::sleep_until_event(std::uint64_t now) {
  publish_wakes();  // answers to requests that an event has completed since the round
  if (!prepare_sleep()) return false;
  std::uint64_t until = server_.anything_waits() ? now + kRetryNs * 5 : next_tick_ns_;
  if (cluster_) until = std::min(until, cluster_->next_poll_ns());
  const std::uint64_t wait_ns = until > now ? until - now : 0;
  handle_events(static_cast<int>((wait_ns + 999999) / 1000000));
  woken_ = true;
  return true;
}

// ---- Events -------------------------------------------------------------------------------------

void Agent::watch(int fd, Watch entry) {
  epoll_event event{};
  // The bell of a client is edge-triggered and never read. The client shares the file description,
  // and could make a read block by clearing O_NONBLOCK.
  event.events = EPOLLIN | (entry.kind == Watch::Kind::kRing ? EPOLLET : 0u);
  entry.turn = ++next_turn_;
  event.data.u64 = (std::uint64_t{entry.turn} << 32) | static_cast<std::uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) watches_[fd] = std::move(entry);
}

void Agent::unwatch(int fd) {
  if (watches_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

[[gnu::hot]] void Agent::handle_events(int timeout_ms) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto fd = static_cast<int>(events[i].data.u64 & 0xffffffffu);
    const auto found = watches_.find(fd);
    // An earlier event of this batch may have closed the descriptor, and the number may be in use
    // again.
    if (found == watches_.end() || found->second.turn != events[i].data.u64 >> 32) continue;
    if (found->second.kind == Watch::Kind::kConnection) {
      on_message(fd);
      continue;
    }
    const Watch watch = found->second;
    handle(watch);
  }
}

[[gnu::hot]] void Agent::handle(const Watch& watch) {
  switch (watch.kind) {
    case Watch::Kind::kListener:
      accept_clients();
      break;
    case Watch::Kind::kWake: {
      drain_eventfd(wake_.get());
      adopt_embedded_connections();
      MutexLock lock(suspicions_mutex_);
      for (const std::uint64_t id : suspicions_) {
        const auto found = sessions_.find(id);
        if (found == sessions_.end()) continue;
        found->second->suspected = true;
        deactivate_all(*found->second);
        spdlog::info("event=session_suspected id={} pid={}", id, found->second->pid);
      }
      suspicions_.clear();
      for (auto& [name, scrubber] : scrubbers_) act_on_findings(name, *scrubber);
      break;
    }
    case Watch::Kind::kPidfd:
      end_session(watch.id);
      break;
    case Watch::Kind::kRing: {
      const auto found = sessions_.find(watch.id);
      if (found == sessions_.end()) break;
      if (found->second->suspected) break;
      for (std::uint32_t i = 0; i < found->second->channels.size(); ++i) {
        activate(*found->second, i);
      }
      break;
    }
    case Watch::Kind::kChunk:
      if (watch.tenant->store->pool().on_chunk()) server_.retry_waiting(now_ns());
      if (const Status& status = watch.tenant->store->pool().growth_status(); !status.ok()) {
        spdlog::warn("event=pool_growth_stopped namespace={} reserved_mib={} cause=\"{}\"",
                     watch.tenant->name, watch.tenant->store->pool().reserved_bytes() >> 20,
                     status.to_string());
      }
      break;
    case Watch::Kind::kStore:
      unwatch(static_cast<int>(watch.id));
      if (Status status = descriptors_->restart(); !status.ok()) {
        spdlog::error("event=keeper_lost cause=\"{}\"", status.to_string());
        break;
      }
      keep_everything_again();
      break;
    case Watch::Kind::kCluster:
      cluster_->poll(now_ns());
      cluster_->flush(now_ns());
      if (cluster_->take_ended()) server_.finish_remote_requests(now_ns());
      if (cluster_->fenced()) {
        spdlog::error("event=fenced cause=\"a newer process has joined the cluster as this node\"");
        stop();
      }
      break;
    case Watch::Kind::kConnection:
      break;
  }
}

void Agent::act_on_findings(const std::string& tenant, Scrubber& scrubber) {
  ObjectStore& store = *tenants_.at(tenant)->store;
  for (const Scrubber::Finding& finding : scrubber.take()) {
    if (store.drop_corrupt(finding.entry, finding.version)) {
      spdlog::error("event=corrupt_object namespace={} entry={}", tenant, finding.entry);
    }
  }
  store.counters().verified = scrubber.verified();
}

void Agent::tick(std::uint64_t now) {
  next_tick_ns_ = now + kTickNs;
  if (!options_.repeatable) {
    for (auto& [id, session] : sessions_) session->take_touches();
  }
  const bool idle = now - last_work_ns_ > kIdleAgentNs;
  for (auto& [name, tenant] : tenants_) {
    tenant->store->pool().set_idle(idle);
    tenant->store->tick(now);
  }
  if (server_.anything_away()) server_.finish_remote_requests(now);
  ask_for_reservation_cache(now);
  std::erase_if(scrubbers_, [&](const auto& entry) {
    if (!entry.second->done()) return false;
    act_on_findings(entry.first, *entry.second);  // the last findings may be unread
    return true;
  });
  const int store_fd = descriptors_->death_fd();
  if (store_fd >= 0 && !watches_.contains(store_fd)) {
    watch(store_fd, {Watch::Kind::kStore, static_cast<std::uint64_t>(store_fd), nullptr});
  }
  if (now < next_page_ns_ || embedded_) return;
  next_page_ns_ = now + kCountersPeriodNs;
  counters_page_.write(Admin(*this).counters_text());
  ::sd_notify(0, "WATCHDOG=1");
}

}  // namespace mc::agent
