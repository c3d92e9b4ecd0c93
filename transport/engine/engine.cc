// SPDX-License-Identifier: Apache-2.0
//
// The engine's start and end, its I/O thread, and how a caller that waits drives the transport.
#include "transport/engine/engine.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "libmc/base/clock.h"

namespace mc::transfer {

namespace {

constexpr std::uint64_t kSpinNs = 200'000;        // after the last work: then sleep
constexpr std::uint64_t kLetInNs = 20'000;        // the longest that a turn waits for others
constexpr std::uint64_t kPortNs = 1'000'000;      // between two looks at the port while busy
constexpr std::uint64_t kWaitingNs = 10'000'000;  // between two looks at what waits for a peer
constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;

std::uint64_t random_id() {
  std::uint64_t id = 0;
  const auto nonce = metadata::rpc::make_nonce();
  std::memcpy(&id, nonce.data(), sizeof id);
  return id != 0 ? id : 1;
}

Status watch(const Fd& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
}

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(options), pid_(::getpid()) {}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto listen = resolve(options.listen);
  if (!listen) return fail(listen.error());
  metadata::rpc::ClusterKey key;
  if (!options.key_file.empty()) {
    auto read = metadata::rpc::ClusterKey::from_file(options.key_file);
    if (!read) return fail(read.error());
    key = std::move(*read);
  }
  auto engine = std::unique_ptr<Engine>(new Engine(options));
  Status status = engine->start(*listen, key);
  if (!status.ok()) return fail(status);
  return engine;
}

Status Engine::start(const Address& listen, const metadata::rpc::ClusterKey& key) {
  auto names = Names::open(options_.metadata, options_.cluster);
  if (!names) return names.error();
  names_ = std::move(*names);
  auto port = Port::open(listen, key, options_.cluster, *this);
  if (!port) return port.error();
  port_ = std::move(*port);

  engine_descriptor_ = blank_engine_descriptor();
  engine_descriptor_.node = random_id();
  engine_descriptor_.incarnation = random_id();
  const auto nonce = metadata::rpc::make_nonce();
  static_assert(sizeof nonce == sizeof(Nonce));
  std::memcpy(engine_descriptor_.nonce.data(), nonce.data(), nonce.size());
  tell_host(&engine_descriptor_);

  transport::tcp::TcpOptions tcp;
  tcp.node = engine_descriptor_.node;
  tcp.incarnation = engine_descriptor_.incarnation;
  tcp.congestion_control = options_.congestion_control;
  auto transport = transport::tcp::TcpTransport::create(tcp, *port_);
  if (!transport) return transport.error();
  transport_ = std::move(*transport);

  directory_ = std::make_unique<DirectoryWriter>(engine_descriptor_.nonce);
  transport::RegionSpec spec;
  spec.data = directory_->data();
  spec.size_bytes = kMaxDirectoryBytes;
  spec.rights = transport::kRemoteRead;
  auto region = transport_->register_region(spec);
  if (!region) return region.error();
  directory_region_ = *region;
  const auto text = transport_->describe(directory_region_);
  if (!text) return text.error();
  if (text->size() != kRegionTextBytes) return {MC_INTERNAL, "a region's description has 24 bytes"};
  std::memcpy(engine_descriptor_.directory.data(), text->data(), kRegionTextBytes);
  engine_descriptor_.directory_bytes = kMaxDirectoryBytes;
  engine_descriptor_.directory_address = reinterpret_cast<std::uint64_t>(directory_->data());
  DeviceDriver::find();
  port_->start(*transport_, engine_descriptor_);

  outer_.reset(::epoll_create1(EPOLL_CLOEXEC));
  auto wake = make_eventfd();
  if (!outer_ || !wake) return {MC_NO_MEMORY, errno_text("epoll_create1 or eventfd", errno)};
  wake_ = std::move(*wake);
  for (const int fd :
       {transport_->wait_fd(), port_->listening_fd(), port_->shaking_fd(), wake_.get()}) {
    Status watched = watch(outer_, fd);
    if (!watched.ok()) return watched;
  }
  name_ = options_.name.empty() ? text_of(port_->address()) : options_.name;
  io_thread_ = std::thread([this] { run(); });
  return names_->publish(name_, port_->address(), now_ns() + options_.timeout_ns);
}

Engine::~Engine() {
  names_.reset();  // first, so that nobody finds an engine that is gone
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (wake_) signal_eventfd(wake_.get());
    copier_wakes_.notify_all();
  }
  if (io_thread_.joinable()) io_thread_.join();
  if (copier_.joinable()) copier_.join();
  transport_.reset();  // before the guards of regions, and memory that stands for devices'
}

bool Engine::inherited_by_fork() const { return ::getpid() != pid_; }

void Engine::fill(mc_transfer_info* info) {
  Lock lock = lock_in();
  const transport::Counters& counters = transport_->counters();
  info->name = name_.c_str();
  info->port = tcp_port();
  info->reserved0 = 0;
  info->regions = static_cast<std::uint32_t>(regions_.size());
  info->written_bytes = counters.written_bytes + same_host_written_;
  info->read_bytes = counters.read_bytes + same_host_bytes_ - same_host_written_;
  info->same_host_bytes = same_host_bytes_;
  info->refused_requests = counters.refused_requests;
  info->notifications_dropped = dropped_;
  info->device_bytes = device_bytes_;
}

// ---- The loop ---------------------------------------------------------------------------------

// Who drives looks at contenders_ between two turns.
Engine::Lock Engine::lock_in() {
  contenders_.fetch_add(1, std::memory_order_relaxed);
  Lock lock(mutex_);
  contenders_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

// Between two turns: who waits for the lock gets it, and a peer on our processor its turn.
void Engine::let_in(Lock& lock) {
  lock.unlock();
  const std::uint64_t until_ns = now_ns() + kLetInNs;
  do {
    std::this_thread::yield();
  } while (contenders_.load(std::memory_order_relaxed) > 0 && now_ns() < until_ns);
  lock.lock();
}

void Engine::set_armed(bool armed) {
  if (armed == armed_) return;
  armed_ = armed;
  epoll_event event{};
  event.events = armed ? static_cast<std::uint32_t>(EPOLLIN) : 0;
  event.data.fd = transport_->wait_fd();
  static_cast<void>(::epoll_ctl(outer_.get(), EPOLL_CTL_MOD, transport_->wait_fd(), &event));
}

// Wakes the I/O thread if there is something to do before it would look by itself.
void Engine::nudge() {
  if (!sleeping_ || driven_) return;
  if (outgoing_.empty() && transport_->next_poll_ns() >= sleeping_until_ns_) return;
  sleeping_ = false;
  signal_eventfd(wake_.get());
}

bool Engine::step(std::uint64_t now) {
  const transport::Counters& counters = transport_->counters();
  const std::uint64_t calls = counters.send_calls + counters.receive_calls;
  events_.clear();
  transport_->poll(now, events_);
  for (const transport::Event& event : events_) handle(event);
  if (!outgoing_.empty()) send_outgoing();
  if (now >= next_port_ns_) {
    next_port_ns_ = now + kPortNs;
    port_->poll(now);
    if (waiting_ > 0) expire_waiting(now);
  }
  return !events_.empty() || counters.send_calls + counters.receive_calls != calls;
}

void Engine::handle(const transport::Event& event) {
  using Kind = transport::Event::Kind;
  if (event.kind == Kind::kNotified) {
    auto notification = decode_notification(event.payload);
    if (!notification) return;  // of an engine that speaks something else
    if (notifications_.size() >= MC_MAX_TRANSFER_NOTIFICATIONS) {
      ++dropped_;
    } else {
      notifications_.push_back(std::move(*notification));
    }
    return;
  }
  if (event.kind == Kind::kCompleted) {
    on_request(event);
    return;
  }
  if (event.kind != Kind::kPeerLost) return;
  for (const auto& peer : peers_) {
    if (peer && peer->transport_id == event.peer) {
      lose(*peer, {MC_AGENT_UNAVAILABLE, "the engine at " + text_of(peer->address) +
                                             " answers no more; is its process alive?"});
      return;
    }
  }
}

void Engine::run() {
  Lock lock(mutex_);
  std::uint64_t last_served_ns = 0;
  while (!stopping_) {
    const std::uint64_t now = now_ns();
    if (!driven_) {
      const transport::Counters& counters = transport_->counters();
      const std::uint64_t served = counters.served_bytes + counters.taken_bytes;
      step(now);
      if (counters.served_bytes + counters.taken_bytes != served) last_served_ns = now;
      // A peer that asks often is not kept waiting for us to wake. Our own callers drive
      // themselves.
      if (now < last_served_ns + kSpinNs) {
        let_in(lock);
        continue;
      }
    }
    std::uint64_t until = std::min(transport_->next_poll_ns(), now + kLongestSleepNs);
    if (driven_) until = now + kLongestSleepNs;
    if (port_->shaking() || waiting_ > 0) until = std::min(until, now + kWaitingNs);
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
    if (waiting_ > 0) expire_waiting(now_ns());
  }
}

bool Engine::wait_until(Lock& lock, std::condition_variable& changed, std::uint64_t deadline_ns,
                        const std::function<bool()>& done) {
  if (!driven_ && !done()) {
    driven_ = true;
    if (sleeping_) set_armed(false);
    std::uint64_t last_work_ns = now_ns();
    for (;;) {
      const std::uint64_t now = now_ns();
      if (step(now)) last_work_ns = now;
      if (done() || now >= deadline_ns || now >= last_work_ns + kSpinNs) break;
      let_in(lock);
    }
    driven_ = false;
    if (sleeping_) set_armed(true);
    nudge();
  }
  while (!done()) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    changed.wait_for(lock, std::chrono::nanoseconds(deadline_ns - now));
  }
  return true;
}

}  // namespace mc::transfer
