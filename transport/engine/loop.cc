// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "libmc/base/clock.h"

namespace mc::transfer {

namespace {

constexpr std::uint64_t kSpinNs = 200'000;        // spin time after the last work, before a sleep
constexpr std::uint64_t kLetInNs = 20'000;        // longest pause of a driving thread for others
constexpr std::uint64_t kPortNs = 1'000'000;      // interval of looks at the port while busy
constexpr std::uint64_t kWaitingNs = 10'000'000;  // interval of looks at waiting requests
constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;

Status watch(const Fd& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
}

}  // namespace

Status Loop::start(transport::Transport& transport, Port& port) {
  transport_ = &transport;
  port_ = &port;
  outer_.reset(::epoll_create1(EPOLL_CLOEXEC));
  auto made = make_eventfd();
  if (!outer_ || !made) return {MC_NO_MEMORY, errno_text("epoll_create1 or eventfd", errno)};
  wake_ = std::move(*made);
  for (const int fd : {transport.wait_fd(), port.listening_fd(), port.shaking_fd(), wake_.get()}) {
    Status watched = watch(outer_, fd);
    if (!watched.ok()) return watched;
  }
  io_thread_ = std::thread([this] { run(); });
  return {};
}

void Loop::stop() {
  {
    MutexLock lock(mutex);
    stopping_ = true;
    if (wake_) signal_eventfd(wake_.get());
  }
  if (io_thread_.joinable()) io_thread_.join();
}

// let_in() reads contenders_ between two steps.
void Loop::enter() {
  contenders_.fetch_add(1, std::memory_order_relaxed);
  mutex.lock();
  contenders_.fetch_sub(1, std::memory_order_relaxed);
}

// Between two steps: threads that wait for the lock get the lock, and a peer on this processor gets
// the processor.
void Loop::let_in() {
  mutex.unlock();
  const std::uint64_t until_ns = now_ns() + kLetInNs;
  do {
    std::this_thread::yield();
  } while (contenders_.load(std::memory_order_relaxed) > 0 && now_ns() < until_ns);
  mutex.lock();
}

void Loop::set_armed(bool armed) {
  if (armed == armed_) return;
  armed_ = armed;
  epoll_event event{};
  event.events = armed ? static_cast<std::uint32_t>(EPOLLIN) : 0;
  event.data.fd = transport_->wait_fd();
  static_cast<void>(::epoll_ctl(outer_.get(), EPOLL_CTL_MOD, transport_->wait_fd(), &event));
}

void Loop::nudge() {
  assert_held();
  if (!sleeping_ || driven_) return;
  if (!sink_.has_outgoing() && transport_->next_poll_ns() >= sleeping_until_ns_) return;
  sleeping_ = false;
  signal_eventfd(wake_.get());
}

void Loop::wake() {
  assert_held();
  if (sleeping_ && !driven_) signal_eventfd(wake_.get());
}

// True: the transport made progress.
bool Loop::step(std::uint64_t now) {
  const auto progress = [this] {
    const transport::Counters& counters = transport_->counters();
    return counters.send_calls + counters.receive_calls + counters.read_bytes +
           counters.written_bytes;
  };
  const std::uint64_t before = progress();
  events_.clear();
  transport_->poll(now, events_);
  for (const transport::Event& event : events_) sink_.on_event(event);
  if (sink_.has_outgoing()) sink_.send_outgoing();
  if (now >= next_port_ns_) {
    next_port_ns_ = now + kPortNs;
    port_->poll(now);
    if (sink_.has_waiting()) sink_.expire_waiting(now);
  }
  return !events_.empty() || progress() != before;
}

void Loop::step_if_idle() {
  if (!driven_) step(now_ns());
}

void Loop::run() {
  MutexLock lock(mutex);
  std::uint64_t last_served_ns = 0;
  while (!stopping_) {
    const std::uint64_t now = now_ns();
    if (!driven_) {
      const transport::Counters& counters = transport_->counters();
      const std::uint64_t served = counters.served_bytes + counters.taken_bytes;
      step(now);
      if (counters.served_bytes + counters.taken_bytes != served) last_served_ns = now;
      // A peer that asks often must not wait for this thread to wake, so spin. Callers of this
      // engine drive the transport themselves.
      if (now < last_served_ns + kSpinNs) {
        let_in();
        continue;
      }
    }
    std::uint64_t until = std::min(transport_->next_poll_ns(), now + kLongestSleepNs);
    if (driven_) until = now + kLongestSleepNs;
    if (port_->shaking() || sink_.has_waiting()) until = std::min(until, now + kWaitingNs);
    if (until <= now) continue;
    sleeping_ = true;
    sleeping_until_ns_ = until;
    set_armed(!driven_);
    lock.unlock();
    epoll_event events[8];
    static_cast<void>(
        ::epoll_wait(outer_.get(), events, 8, static_cast<int>((until - now) / 1'000'000 + 1)));
    lock.lock();
    sleeping_ = false;
    drain_eventfd(wake_.get());
    port_->poll(now_ns());
    if (sink_.has_waiting()) sink_.expire_waiting(now_ns());
  }
}

bool Loop::wait_until(Condition& changed, std::uint64_t deadline_ns,
                      const std::function<bool()>& done) {
  if (!driven_ && !done()) {
    driven_ = true;
    if (sleeping_) set_armed(false);
    std::uint64_t last_work_ns = now_ns();
    for (;;) {
      const std::uint64_t now = now_ns();
      if (step(now)) last_work_ns = now;
      if (done() || now >= deadline_ns || now >= last_work_ns + kSpinNs) break;
      let_in();
    }
    driven_ = false;
    if (sleeping_) set_armed(true);
    nudge();
  }
  while (!done()) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    changed.wait_until(
        mutex, std::chrono::steady_clock::now() + std::chrono::nanoseconds(deadline_ns - now));
  }
  return true;
}

}  // namespace mc::transfer
