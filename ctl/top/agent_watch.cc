// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/agent_watch.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "ctl/text/failure.h"

namespace mc::ctl::top {
namespace {

// An upgraded agent is back within a second.
constexpr double kRetryS = 0.2;
// After the first look, the first rates come soon, also with a long interval.
constexpr double kFirstIntervalS = 1;

}  // namespace

AgentWatch::AgentWatch(std::string socket_path, std::uint64_t timeout_ns, double interval_s,
                       Fd event)
    : socket_path_(std::move(socket_path)),
      timeout_ns_(timeout_ns),
      event_(std::move(event)),
      interval_s_(interval_s) {
  // Signals belong to the thread of the screen.
  sigset_t all;
  sigset_t own;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &own);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
}

AgentWatch::~AgentWatch() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::optional<Feed> AgentWatch::take() {
  drain_eventfd(event_.get());
  const MutexLock lock(mutex_);
  return std::exchange(news_, std::nullopt);
}

void AgentWatch::set_interval(double interval_s) {
  const MutexLock lock(mutex_);
  interval_s_ = interval_s;
  changed_.notify_all();
}

Feed AgentWatch::next_feed() {
  auto look = look_at_agent(socket_path_, timeout_ns_);
  if (!look) {
    before_.reset();
    return {Json::Value(), explain(look.error().code(), look.error().text()).cause};
  }
  const auto at = Clock::now();
  const bool same = before_ && is_same_agent(*before_, *look);
  // A new agent has no rates yet. Its other figures are shown at once.
  const double elapsed_s = same ? std::chrono::duration<double>(at - before_at_).count() : 0;
  Feed feed{sample_of(same ? *before_ : AgentLook{}, *look, elapsed_s)};
  look_count_ = same ? look_count_ + 1 : 1;
  before_ = std::move(*look);
  before_at_ = at;
  return feed;
}

void AgentWatch::wait_until_next(Clock::time_point looked_at, bool answered) {
  const MutexLock lock(mutex_);
  while (!ends_) {
    double wait_s = interval_s_;
    if (!answered) wait_s = std::min(wait_s, kRetryS);
    if (answered && look_count_ == 1) wait_s = std::min(wait_s, kFirstIntervalS);
    const auto next = looked_at + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(wait_s));
    // Another interval ends the wait early, so that the new one counts.
    if (changed_.wait_until(mutex_, next) == std::cv_status::timeout) return;
  }
}

void AgentWatch::run() {
  while (true) {
    const auto looked_at = Clock::now();
    Feed feed = next_feed();
    const bool answered = feed.trouble.empty();
    {
      const MutexLock lock(mutex_);
      if (ends_) return;
      news_ = std::move(feed);
    }
    signal_eventfd(event_.get());
    wait_until_next(looked_at, answered);
  }
}

}  // namespace mc::ctl::top
