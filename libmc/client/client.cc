// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/client.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <set>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"
#include "libmc/client/admin.h"
#include "libmc/client/completion_queue.h"
#include "libmc/client/device/device_copies.h"
#include "libmc/client/device/stream_copies.h"
#include "libmc/device/driver.h"

namespace mc::client {

namespace {

constexpr std::uint32_t kDefaultChannels = 16;
constexpr std::uint64_t kFirstBackoffNs = 2000000;
constexpr std::uint64_t kMaxBackoffNs = 100000000;
constexpr std::uint64_t kHelloTimeoutNs = 5000000000;
constexpr int kNudgeMs = 100;
// While memory of an earlier session is left, the watcher looks at this interval.
constexpr int kOldMemoryMs = 500;

constexpr std::uint64_t kSampledReads = 64;

std::atomic<std::uint64_t> next_serial{1};
std::atomic<EmbeddedFactory> embedded_factory{nullptr};

// Counts the forks that led to this process, so that a child recognises inherited clients.
std::atomic<std::uint32_t> fork_generation{0};
void count_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork(nullptr, nullptr,
                     [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  });
}

class SocketConnector : public Connector {
 public:
  explicit SocketConnector(std::string path) : path_(std::move(path)) {}
  Result<Fd> connect(std::uint64_t timeout_ns) override { return connect_unix(path_, timeout_ns); }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Connector> make_socket_connector(std::string path) {
  return std::make_unique<SocketConnector>(std::move(path));
}

void set_embedded_factory(EmbeddedFactory factory) { embedded_factory = factory; }

// ---- Threads and their channels -----------------------------------------------------------------

struct Client::Registry {
  Mutex mutex;
  std::vector<std::unique_ptr<Channel>> all MC_GUARDED_BY(mutex);
  std::vector<Channel*> idle MC_GUARDED_BY(mutex);
};

// The channels of a thread. The destructor returns the channels to their clients when the thread
// ends.
struct ThreadChannels {
  struct Held {
    std::uint64_t serial;
    Channel* channel;
    std::weak_ptr<Client::Registry> registry;
  };
  std::vector<Held> held;
  ~ThreadChannels() {
    for (const Held& one : held) {
      if (const auto registry = one.registry.lock()) {
        const MutexLock lock(registry->mutex);
        registry->idle.push_back(one.channel);
      }
    }
  }
};

namespace {
struct LastUsed {
  std::uint64_t serial = 0;
  Channel* channel = nullptr;
};
__attribute__((tls_model("initial-exec"))) thread_local LastUsed last_used;
thread_local ThreadChannels thread_channels;
}  // namespace

Channel* Client::quick_channel() {
  if (last_used.serial != serial_) return nullptr;
  Channel* channel = last_used.channel;
  if (channel->generation() != generation()) return nullptr;
  if (fork_generation_ != fork_generation.load(std::memory_order_relaxed)) return nullptr;
  return channel;
}

Channel* Client::assign_channel() {
  for (const ThreadChannels::Held& held : thread_channels.held) {
    if (held.serial == serial_) return held.channel;
  }
  Channel* channel = lease_channel();
  if (channel == nullptr) return nullptr;
  // Closed clients leave expired entries behind.
  std::erase_if(thread_channels.held, [](const auto& held) { return held.registry.expired(); });
  thread_channels.held.push_back({serial_, channel, registry_});
  return channel;
}

Channel* Client::lease_channel() {
  const MutexLock lock(registry_->mutex);
  if (!registry_->idle.empty()) {
    Channel* channel = registry_->idle.back();
    registry_->idle.pop_back();
    return channel;
  }
  // The last channel is shared by all threads that have no private channel.
  if (registry_->all.size() + 1 >= texts_.channel_count) return nullptr;
  const auto number = static_cast<std::uint32_t>(registry_->all.size());
  registry_->all.push_back(std::make_unique<Channel>(this, number, reads_per_check_));
  return registry_->all.back().get();
}

void Client::return_channel(Channel* channel) {
  const MutexLock lock(registry_->mutex);
  registry_->idle.push_back(channel);
}

[[gnu::hot]] Result<ChannelUse> Client::channel(std::uint64_t deadline_ns) {
  if (Channel* channel = quick_channel()) return ChannelUse(channel);
  if (inherited_by_fork()) return fail(Status(MC_FORKED));
  ChannelUse use;
  if (Channel* own = assign_channel()) {
    use = ChannelUse(own);
  } else {
    use = ChannelUse(shared_channel_.get(), std::unique_lock(shared_channel_mutex_));
  }
  Status status;
  while (use->generation() != generation()) {
    if (status = lost(); !status.ok()) return fail(status);
    status = use->join(deadline_ns);
    if (status.ok()) break;
    if (now_ns() >= deadline_ns || stop_within(kFirstBackoffNs)) return fail(status);
  }
  if (Status gone = lost(); !gone.ok()) return fail(gone);
  if (&*use != shared_channel_.get()) last_used = {serial_, &*use};
  return use;
}

Status Client::open_channel(AgentLink& link, std::uint32_t number, std::uint64_t deadline_ns) {
  const MutexLock lock(control_mutex_);
  const std::uint64_t now = now_ns();
  const std::uint64_t wait_ns = std::clamp<std::uint64_t>(deadline_ns > now ? deadline_ns - now : 0,
                                                          100000000, kHelloTimeoutNs);
  auto answer = ask(link, shm::ControlType::kOpenChannel, number, wait_ns);
  return answer ? Status() : answer.error();
}

Result<std::unique_ptr<LaneEnd>> Client::open_lane(const device::Uuid& device) {
  const Current now = current();
  const MutexLock lock(control_mutex_);
  auto answer = ask(*now.connection.link, shm::ControlType::kOpenLane, 0, kHelloTimeoutNs,
                    {reinterpret_cast<const char*>(device.bytes), sizeof device.bytes});
  if (!answer) return fail(answer.error());
  return LaneEnd::open(std::move(answer->fds), {answer->value, now.connection.memory->serial});
}

// ---- Connection ---------------------------------------------------------------------------------

// One in so many reads is verified; 0: none.
Result<std::uint64_t> Client::reads_per_check(std::uint32_t verify) {
  if (verify == MC_VERIFY_DEFAULT) {
    const char* const named = std::getenv("MC_VERIFY");
    const std::string text = named != nullptr && named[0] != '\0' ? named : "sampled";
    if (text == "never") verify = MC_VERIFY_NEVER;
    if (text == "sampled") verify = MC_VERIFY_SAMPLED;
    if (text == "always") verify = MC_VERIFY_ALWAYS;
    if (verify == MC_VERIFY_DEFAULT) {
      return fail(MC_INVALID_ARGUMENT,
                  "MC_VERIFY is \"" + text + "\"; use never, sampled or always");
    }
  }
  switch (verify) {
    case MC_VERIFY_NEVER:
      return 0;
    case MC_VERIFY_SAMPLED:
      return kSampledReads;
    case MC_VERIFY_ALWAYS:
      return 1;
    default:
      return fail(MC_INVALID_ARGUMENT, "mc_open_options.verify is no mc_verify");
  }
}

Result<std::unique_ptr<Client>> Client::open(const mc_open_options& options) {
  // A C program may pass any number, which must not be read as an enumerator before the check.
  static_assert(sizeof options.verify == sizeof(std::uint32_t));
  std::uint32_t verify = 0;
  std::memcpy(&verify, &options.verify, sizeof verify);
  const auto per_check = reads_per_check(verify);
  if (!per_check) return fail(per_check.error());
  count_forks();
  const std::string agent = options.agent != nullptr ? options.agent : default_agent_socket();
  std::unique_ptr<Connector> connector;
  if (agent == "embedded") {
    const EmbeddedFactory factory = embedded_factory;
    if (factory == nullptr) {
      return fail(MC_UNSUPPORTED, "this build of libmc has no embedded agent; link libmc.so");
    }
    auto made = factory(options.embedded_config != nullptr ? options.embedded_config : "");
    if (!made) return fail(made.error());
    connector = std::move(*made);
  } else {
    if (options.embedded_config != nullptr) {
      return fail(MC_INVALID_ARGUMENT, "embedded_config needs agent = \"embedded\"");
    }
    connector = make_socket_connector(agent);
  }
  device::Driver::find();  // before the first device address can be passed
  auto client = std::unique_ptr<Client>(new Client(options, *per_check, std::move(connector)));
  if (Status status = client->start(); !status.ok()) return fail(status);
  return client;
}

Client::Client(const mc_open_options& options, std::uint64_t reads_per_check,
               std::unique_ptr<Connector> connector)
    : connector_(std::move(connector)),
      timeout_ns_(options.timeout_ns != 0 ? options.timeout_ns : MC_DEFAULT_TIMEOUT_NS),
      staging_bytes_(options.staging_bytes),
      reads_per_check_(reads_per_check),
      serial_(next_serial.fetch_add(1)),
      fork_generation_(fork_generation.load()),
      stream_reads_(std::make_shared<CopyGroup>()),
      registry_(std::make_shared<Registry>()) {
  texts_.name_space = options.name_space != nullptr ? options.name_space : "default";
  texts_.label = options.label != nullptr ? options.label : program_invocation_short_name;
  texts_.channel_count = options.channel_count != 0 ? options.channel_count : kDefaultChannels;
  shared_channel_ = std::make_unique<Channel>(this, texts_.channel_count - 1, reads_per_check_);
}

Status Client::start() {
  auto stop_event = make_eventfd();
  if (!stop_event) return stop_event.error();
  stop_event_ = std::move(*stop_event);
  auto queue_event = make_eventfd();
  if (!queue_event) return queue_event.error();
  queue_event_ = std::move(*queue_event);
  const std::uint64_t deadline_ns = now_ns() + timeout_ns_;
  for (;;) {
    const std::uint64_t now = now_ns();
    const std::uint64_t left_ns = deadline_ns > now ? deadline_ns - now : 0;
    auto socket = connector_->connect(left_ns);
    if (!socket) return socket.error();
    auto connection = say_hello(std::move(*socket), texts_, nullptr, left_ns);
    if (connection) {
      adopt(std::move(*connection));
      break;
    }
    // An agent that exited after it accepted the connection is treated like an agent that is
    // starting.
    const bool again = connection.error().code() == MC_AGENT_UNAVAILABLE;
    if (!again || now_ns() >= deadline_ns || stop_within(kFirstBackoffNs)) {
      return connection.error();
    }
  }
  std::promise<void> held;
  std::future<void> beacon_held = held.get_future();
  watcher_ = std::thread([this, held = std::move(held)]() mutable { watch_agent(held); });
  // The agent must find the beacon held before the first channel opens.
  beacon_held.wait();
  return {};
}

StreamCopies& Client::stream_copies() {
  const MutexLock lock(mutex_);
  if (!stream_copies_) stream_copies_ = std::make_unique<StreamCopies>(*this);
  return *stream_copies_;
}

// The memory may be freed after the client's end.
void Client::close_registered_memory() {
  if (inherited_by_fork()) return;
  std::unique_ptr<StreamCopies> ended;
  {
    const MutexLock lock(mutex_);
    ended = std::move(stream_copies_);
  }
  ended.reset();
  if (!lost().ok()) return;
  const auto memories = registrations_.remove_all();
  if (memories.empty()) return;
  auto use = channel(now_ns() + kMaxBackoffNs);
  for (const auto& memory : memories) {
    if (use) (*use)->devices().close(*memory);
  }
}

Client::~Client() {
  close_registered_memory();
  if (watcher_.joinable()) {
    signal_eventfd(stop_event_.get());
    watcher_.join();
  }
  const Current now = current();
  if (!inherited_by_fork() && now.connection.link) {
    const MutexLock lock(control_mutex_);
    // If the agent does not answer, the agent learns of the end from the closed socket or the end
    // of this process.
    static_cast<void>(
        ask(*now.connection.link, shm::ControlType::kGoodbye, 0, kHelloTimeoutNs).has_value());
  }
}

void Client::adopt(Connection connection) {
  const MutexLock lock(mutex_);
  // If the session went on, only the bells are old. Channels hold the old bells until the channels
  // follow.
  if (connection_.memory != connection.memory) {
    if (connection_.memory) old_memory_.push_back(connection_.memory);
    if (staging_) old_staging_.push_back(std::exchange(staging_, nullptr));
  }
  connection_ = std::move(connection);
  generation_.fetch_add(1, std::memory_order_release);
}

// Returns true while memory of earlier sessions is left. Channels keep the rest of a session, without
// pool and index, until their threads come by.
bool Client::let_go_of_old_memory() {
  std::vector<std::shared_ptr<Memory>> old;
  {
    const MutexLock lock(mutex_);
    old = old_memory_;
  }
  std::set<const Memory*> gone;
  for (const std::shared_ptr<Memory>& memory : old) {
    if (memory->let_go()) gone.insert(memory.get());
  }
  old.clear();
  const MutexLock lock(mutex_);
  std::erase_if(old_memory_, [&](const std::shared_ptr<Memory>& memory) {
    return gone.contains(memory.get()) && memory.use_count() == 1;
  });
  std::erase_if(old_staging_, [](const std::shared_ptr<Staging>& staging) {
    return staging.use_count() == 1 && staging->unused();
  });
  return !old_memory_.empty() || !old_staging_.empty();
}

Client::Current Client::current() const {
  const MutexLock lock(mutex_);
  return {connection_, generation_.load(std::memory_order_relaxed)};
}

Status Client::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

bool Client::inherited_by_fork() const { return fork_generation_ != fork_generation.load(); }

bool Client::stop_within(std::uint64_t ns) const { return wait_readable(stop_event_.get(), ns); }

// Holds the beacon and waits for the end of the connection, in a loop. While the process has no memory
// left, the thread tries again now and then.
void Client::watch_agent(std::promise<void>& beacon_held) {
  HeldBeacon beacon;
  hold(beacon, current().connection.memory);
  beacon_held.set_value();
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = watch_once(beacon);
    } catch (const std::exception&) {
      goes_on = !stop_within(kOldMemoryMs * 1000000ull);
    }
  }
}

// The old beacon is released before its memory.
void Client::hold(HeldBeacon& beacon, const std::shared_ptr<Memory>& memory) {
  beacon.hold.emplace(memory->session_header());
  beacon.memory = memory;
}

// Returns false at the end of the client.
bool Client::watch_once(HeldBeacon& beacon) {
  const Current now = current();
  if (now.connection.memory != beacon.memory) hold(beacon, now.connection.memory);
  pollfd entries[3] = {{now.connection.link->socket.get(), POLLIN | POLLRDHUP, 0},
                       {stop_event_.get(), POLLIN, 0},
                       {queue_event_.get(), POLLIN, 0}};
  int wait_ms = let_go_of_old_memory() ? kOldMemoryMs : -1;
  {
    const MutexLock lock(queues_mutex_);
    if (!queues_.empty()) wait_ms = kNudgeMs;
  }
  if (::poll(entries, 3, wait_ms) < 0 && errno != EINTR) return false;
  if (entries[1].revents != 0) return false;
  if (entries[2].revents != 0) drain_eventfd(queue_event_.get());
  nudge_queues();
  if ((entries[0].revents & (POLLHUP | POLLERR | POLLRDHUP)) == 0) {
    // Either an answer for another thread arrived, or the agent wants the reservations back.
    if (entries[0].revents != 0) give_back_reservation_cache(now);
    return true;
  }
  reconnect();
  return lost().ok();
}

// Returns all cached reservations to the agent if the agent asked for them. Once a reservation has
// left the cache, only this thread uses the reservation; no channel writes there any longer.
void Client::give_back_reservation_cache(const Current& now) {
  {
    const MutexLock control(control_mutex_);
    take_notice(*now.connection.link);
  }
  if (!now.connection.link->reservation_cache_wanted.exchange(false, std::memory_order_relaxed)) {
    return;
  }
  // If all channels are in use, the agent's next question finds one perhaps.
  Channel* const channel = lease_channel();
  if (channel == nullptr) return;
  if (channel->join(now_ns() + kNudgeMs * 1000000ull).ok()) give_back_through(*channel, now);
  return_channel(channel);
}

void Client::give_back_through(Channel& channel, const Current& now) {
  std::vector<ReservationId> ids;
  {
    const MutexLock lock(registry_->mutex);
    for (const auto& one : registry_->all) {
      one->take_all_reservation_cache(*now.connection.memory, ids);
    }
  }
  shared_channel_->take_all_reservation_cache(*now.connection.memory, ids);
  std::span<const ReservationId> left(ids);
  while (!left.empty()) {
    const auto part = left.first(std::min<std::size_t>(MC_MAX_BATCH_ITEMS, left.size()));
    left = left.subspan(part.size());
    // After a failure the reservations stay with the session, whose end returns them.
    const auto ticket = channel.send_back(part);
    if (!ticket) return;
    // Only the watcher thread reconnects and stops, so the thread waits for no agent that has died or
    // hangs.
    while (!channel.wait_until(*ticket, now_ns() + kNudgeMs * 1000000ull)) {
      pollfd link{now.connection.link->socket.get(), POLLRDHUP, 0};
      if (::poll(&link, 1, 0) == 0 && !stop_within(0)) continue;
      channel.forget(*ticket);
      return;
    }
    channel.finish(*ticket);
  }
}

void Client::add_queue(CompletionQueue* queue) {
  {
    const MutexLock lock(queues_mutex_);
    queues_.push_back(queue);
  }
  signal_eventfd(queue_event_.get());
}

void Client::forget_queue(CompletionQueue* queue) {
  if (inherited_by_fork()) return;
  const MutexLock lock(queues_mutex_);
  std::erase(queues_, queue);
}

void Client::nudge_queues() {
  const MutexLock lock(queues_mutex_);
  for (CompletionQueue* queue : queues_) queue->nudge();
}

void Client::reconnect() {
  std::uint64_t backoff_ns = kFirstBackoffNs;
  std::shared_ptr<Memory> resume = current().connection.memory;
  while (!stop_within(0)) {
    Status status;
    if (auto socket = connector_->connect(0)) {
      auto connection = say_hello(std::move(*socket), texts_, resume, kHelloTimeoutNs);
      if (connection) {
        adopt(std::move(*connection));
        nudge_queues();
        return;
      }
      status = connection.error();
    } else {
      status = socket.error();
    }
    if (status.code() == MC_SESSION_LOST && resume) {
      resume = nullptr;
      continue;
    }
    const bool hopeless = status.code() == MC_NO_SUCH_NAMESPACE ||
                          status.code() == MC_VERSION_MISMATCH ||
                          status.code() == MC_PERMISSION_DENIED;
    if (hopeless) {
      const MutexLock lock(mutex_);
      lost_ = Status(MC_SESSION_LOST, "after the agent's restart: " + status.to_string());
      generation_.fetch_add(1, std::memory_order_release);
      nudge_queues();
      return;
    }
    nudge_queues();
    if (stop_within(backoff_ns)) return;
    backoff_ns = std::min(backoff_ns * 2, kMaxBackoffNs);
  }
}

std::shared_ptr<Memory> Client::memory_of_pin(const shm::Word64* pin) const {
  const auto* at = reinterpret_cast<const std::byte*>(pin);
  const auto holds = [&](const std::shared_ptr<Memory>& memory) {
    const Mapping& map = memory->session_map;
    return at >= map.data() && at < map.data() + map.size_bytes();
  };
  const MutexLock lock(mutex_);
  if (connection_.memory && holds(connection_.memory)) return connection_.memory;
  const auto old = std::find_if(old_memory_.begin(), old_memory_.end(), holds);
  return old == old_memory_.end() ? nullptr : *old;
}

// ---- Staging ------------------------------------------------------------------------------------

Result<std::shared_ptr<Staging>> Client::staging(std::uint64_t deadline_ns) {
  if (auto existing = staging_if_any()) return existing;
  const Current now = current();
  const MutexLock control(control_mutex_);
  if (auto existing = staging_if_any()) return existing;
  const std::uint64_t now_time = now_ns();
  if (now_time >= deadline_ns) {
    return fail(MC_TIMEOUT, "the agent shared no session memory by the deadline; see mcctl status");
  }
  const std::uint64_t wait_ns = std::max(deadline_ns - now_time, kHelloTimeoutNs);
  auto answer = ask(*now.connection.link, shm::ControlType::kOpenStaging, staging_bytes_, wait_ns);
  if (!answer) return fail(answer.error());
  if (answer->fds.empty()) return fail(MC_INTERNAL, "the agent sent no staging memory");
  auto mapping =
      Mapping::map(answer->fds.front().get(), answer->value, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  mapping->forget_in_children();
  const MutexLock lock(mutex_);
  if (connection_.memory != now.connection.memory) {
    return fail(MC_SESSION_LOST, "the agent lost the session of this staging memory");
  }
  staging_ = std::make_shared<Staging>(std::move(*mapping));
  return staging_;
}

std::shared_ptr<Staging> Client::staging_if_any() const {
  const MutexLock lock(mutex_);
  return staging_;
}

std::shared_ptr<Staging> Client::staging_of(const void* memory) const {
  const auto holds = [&](const std::shared_ptr<Staging>& staging) {
    return staging && staging->offset_of(memory, 1).has_value();
  };
  const MutexLock lock(mutex_);
  if (holds(staging_)) return staging_;
  const auto old = std::find_if(old_staging_.begin(), old_staging_.end(), holds);
  return old == old_staging_.end() ? nullptr : *old;
}

}  // namespace mc::client
