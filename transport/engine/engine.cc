// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "libmc/auth/cluster_hello.h"
#include "libmc/base/clock.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::transfer {

namespace {

// A transport cuts a lane that holds a slice for longer than kMaxPinNs.
constexpr std::uint64_t kReleaseNs = transport::kMaxPinNs + 1'000'000'000;
constexpr std::uint64_t kReleaseLookNs = 2'000'000;
constexpr std::uint64_t kDeviceLookNs = 1'000'000;
constexpr std::uint64_t kLongestChunkNs = 1'000'000'000;
// Past the deadline a request ends when the lanes are cut, at the latest.
constexpr std::uint64_t kGraceNs = 2'000'000'000;
constexpr int kMaxGraces = 5;

Status no_segment() { return {MC_INVALID_ARGUMENT, "no such segment is open"}; }
Status no_batch() { return {MC_INVALID_ARGUMENT, "no such batch; it may have been freed"}; }
Status too_many_segments() {
  return {MC_BUSY, "an engine has at most 4096 segments open (MC_MAX_TRANSFER_SEGMENTS)"};
}

// Time for devices to pin or release memory: the kernel takes 0.1 to 0.5 s for each GiB.
std::uint64_t device_time_ns(std::uint64_t size_bytes) {
  return 2'000'000'000 + (size_bytes >> 30) * 2'000'000'000;
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  const auto nonce = auth::make_nonce();
  std::memcpy(&id, nonce.data(), sizeof id);
  return id != 0 ? id : 1;
}

EngineDescriptor make_descriptor() {
  EngineDescriptor own = blank_engine_descriptor();
  own.node = random_id();
  own.incarnation = random_id();
  const auto nonce = auth::make_nonce();
  static_assert(sizeof nonce == sizeof(Nonce));
  std::memcpy(own.nonce.data(), nonce.data(), nonce.size());
  tell_host(&own);
  return own;
}

}  // namespace

// ---- Start and end ----------------------------------------------------------------------------

Engine::Engine(const EngineOptions& options, std::unique_ptr<NameStore> names)
    : options_(options),
      pid_(::getpid()),
      names_(std::move(names)),
      loop_(*this),
      memory_(devices_),
      verifier_(memory_),
      peers_({options.lanes, options.same_host}, loop_, batches_),
      copier_(loop_, peers_, batches_),
      batches_(loop_, peers_, copier_, memory_, devices_) {}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options,
                                             std::unique_ptr<NameStore> names) {
  auto engine = std::unique_ptr<Engine>(new Engine(options, std::move(names)));
  if (Status status = engine->start(); !status.ok()) return fail(status);
  Status published = engine->names_->publish(engine->name_, engine->port_->address(),
                                             now_ns() + options.timeout_ns);
  if (!published.ok()) return fail(published);
  return engine;
}

Status Engine::start() {
  const auto listen = resolve(options_.listen);
  if (!listen) return listen.error();
  const auto key = auth::ClusterKey::find(options_.key_file);
  if (!key) return key.error();
  EngineDescriptor own = make_descriptor();
  device::Driver::find();

  Loop::Turn turn(loop_);
  auto port = Port::open(*listen, *key, options_.cluster, peers_);
  if (!port) return port.error();
  port_ = std::move(*port);
  name_ = options_.name.empty() ? text_of(port_->address()) : options_.name;
  auto transport = open_transport(own);
  if (!transport) return transport.error();
  transport_ = std::move(*transport);
  if (Status status = memory_.start(*transport_, &own); !status.ok()) return status;
  if (Status status = verifier_.start(*transport_, &own); !status.ok()) return status;
  peers_.start(*transport_, *port_, own);
  batches_.start(*transport_);
  port_->start(*transport_, direct_, own);
  return loop_.start(*transport_, *port_);
}

Result<std::unique_ptr<transport::Transport>> Engine::open_transport(const EngineDescriptor& own) {
  transport::tcp::TcpOptions tcp;
  tcp.node = own.node;
  tcp.incarnation = own.incarnation;
  tcp.congestion_control = options_.congestion_control;
  auto by_tcp = transport::tcp::TcpTransport::create(tcp, *port_);
  if (!by_tcp) return fail(by_tcp.error());
  transport::choice::DirectOptions direct;
  direct.node = own.node;
  direct.incarnation = own.incarnation;
  direct.transports = options_.transports;
  direct.rdma_devices = options_.devices;
  direct.fabric_provider = options_.fabric_provider;
  direct.rdma_ack_timeout = options_.rdma_ack_timeout;
  direct.address = port_->address().host;
  direct.place_of = [this](const std::byte* data) {
    loop_.assert_held();
    return memory_.place_of(data);
  };
  auto way = transport::choice::open_direct_way(direct, *port_);
  if (!way) return fail(way.error());
  why_not_ = std::move(way->why_not);
  if (way->transport == nullptr) return std::unique_ptr<transport::Transport>(std::move(*by_tcp));
  direct_ = way->transport.get();
  auto both =
      transport::choice::ChoiceTransport::create(std::move(*by_tcp), std::move(way->transport), 1);
  if (!both) return fail(both.error());
  choice_ = both->get();
  return std::unique_ptr<transport::Transport>(std::move(*both));
}

Engine::~Engine() {
  names_.reset();  // first, so that no peer finds an engine that is gone
  loop_.stop();
  copier_.stop();
  transport_.reset();  // before the memory that registered regions guard
}

bool Engine::inherited_by_fork() const { return ::getpid() != pid_; }

void Engine::fill(mc_transfer_info* info) {
  Loop::Turn turn(loop_);
  const transport::Counters& counters = transport_->counters();
  const std::uint64_t copied = copier_.copied_bytes();
  const std::uint64_t copied_writes = copier_.written_bytes();
  info->name = name_.c_str();
  info->port = port_->address().port;
  info->reserved0 = 0;
  info->regions = static_cast<std::uint32_t>(memory_.count());
  info->written_bytes = counters.written_bytes + copied_writes;
  info->read_bytes = counters.read_bytes + copied - copied_writes;
  info->same_host_bytes = copied;
  info->refused_requests = counters.refused_requests;
  info->notifications_dropped = notifications_.dropped();
  info->device_bytes = devices_.moved_bytes();
  info->transport = direct_ == nullptr ? "" : direct_->capabilities().name.data();
  if (direct_ == nullptr) return;
  const transport::Counters& direct = direct_->counters();
  info->direct_bytes = direct.written_bytes + direct.read_bytes;
}

std::string Engine::describe() {
  Loop::Turn turn(loop_);
  std::string text = direct_ == nullptr ? "tcp alone"
                                        : std::string(direct_->capabilities().name) +
                                              " beside tcp: " + direct_->describe_devices();
  if (!why_not_.empty()) text += "; " + why_not_;
  text += "\n";
  if (const std::string obstacles = choice_ == nullptr ? "" : choice_->obstacles();
      !obstacles.empty()) {
    text += "left out: " + obstacles + "\n";
  }
  std::vector<transport::RailReport> rails;
  transport_->report_rails(rails);
  peers_.for_each([&](const EnginePeer& peer) {
    if (peer.same_host != nullptr) text += peer.name + ": copies within the host\n";
    for (const transport::RailReport& rail : rails) {
      if (rail.peer != peer.transport_id || rail.peer == transport::kNoPeer) continue;
      text += peer.name + ": " + std::string(rail.transport) + " " + rail.name + ": " +
              transport::rail_health_name(rail.status.health) +
              (rail.note.empty() ? "" : " (" + rail.note + ")") + "\n";
    }
  });
  return text;
}

void Engine::on_event(const transport::Event& event) {
  using Kind = transport::Event::Kind;
  if (event.kind == Kind::kNotified) {
    notifications_.add(event.payload);
  } else if (event.kind == Kind::kPeerLost) {
    peers_.on_lost(event.peer);
  } else if (event.kind == Kind::kCompleted && (event.cookie & Peers::kTableCookie) != 0) {
    peers_.on_table_read(event);
  } else if (event.kind == Kind::kCompleted) {
    batches_.on_completed(event);
  }
}

// ---- Memory -----------------------------------------------------------------------------------

Status Engine::register_memory(std::span<const mc_transfer_range> ranges, std::uint32_t rights,
                               const std::string& location) {
  Loop::Turn turn(loop_);
  if (Status added = memory_.add(ranges, rights, location); !added.ok()) return added;
  Status status = direct_ == nullptr ? Status() : await_devices(ranges);
  if (status.ok()) return status;
  std::vector<void*> addresses;
  for (const mc_transfer_range& range : ranges) addresses.push_back(range.address);
  static_cast<void>(unregister_held(addresses));
  return status;
}

Status Engine::await_devices(std::span<const mc_transfer_range> ranges) {
  const bool must = options_.transports != "auto";
  for (const mc_transfer_range& range : ranges) {
    const std::uint64_t deadline_ns = now_ns() + device_time_ns(range.size);
    Status backed;
    Condition none;
    do {
      const auto* const row = memory_.find(static_cast<std::byte*>(range.address), range.size);
      // Another thread has unregistered the memory meanwhile.
      if (row == nullptr) return {};
      backed = transport_->backing(row->id);
      if (backed.code() != MC_BUSY) break;
      static_cast<void>(loop_.wait_until(none, now_ns() + kDeviceLookNs, [] { return false; }));
    } while (now_ns() < deadline_ns);
    // After the time, TCP carries the bytes until the devices are ready.
    if (must && !backed.ok() && backed.code() != MC_BUSY) return backed;
  }
  return {};
}

Status Engine::unregister_memory(std::span<void* const> addresses) {
  Loop::Turn turn(loop_);
  return unregister_held(addresses);
}

Status Engine::unregister_held(std::span<void* const> addresses) {
  auto removed = memory_.remove(addresses);
  if (removed.empty()) return {MC_NOT_FOUND, "no memory is registered at that address"};
  for (const auto& row : removed) {
    release_local(reinterpret_cast<const std::byte*>(row.address), row.size_bytes);
  }
  // Slices that are being sent or received end first; the transport limits the time.
  std::uint64_t deadline_ns = now_ns() + kReleaseNs;
  for (const auto& row : removed) {
    if (direct_ != nullptr) deadline_ns += device_time_ns(row.size_bytes);
    while (!memory_.close(row)) {
      if (now_ns() >= deadline_ns) {
        // The transport still uses pages that stand for a device's memory, so leak the pages.
        for (auto& each : removed) static_cast<void>(each.staged.release());
        return {MC_INTERNAL, "a peer still uses the memory after the time limit"};
      }
      Condition none;
      static_cast<void>(loop_.wait_until(none, now_ns() + kReleaseLookNs, [] { return false; }));
    }
  }
  if (removed.size() < addresses.size()) {
    return {MC_NOT_FOUND, "some addresses were not registered; the others are now unregistered"};
  }
  return {};
}

// Ends this engine's own requests that read or write local memory in the range.
void Engine::release_local(const std::byte* data, std::uint64_t size_bytes) {
  const Status why(MC_CANCELLED, "its local memory was unregistered");
  batches_.for_each_open([&](Batch& batch) {
    loop_.assert_held();
    const auto hit = batches_.cancel_local(batch, data, size_bytes, why);
    if (hit.empty()) return;
    batches_.hold(batch);
    const std::uint64_t deadline_ns = now_ns() + transport::kPeerLostNs + kLongestChunkNs;
    static_cast<void>(loop_.wait_until(batch.changed, deadline_ns, [&] {
      return std::ranges::all_of(
          hit, [&](std::uint32_t i) { return batch.requests[i].state == Request::State::kEnded; });
    }));
    batches_.leave(batch);
  });
}

// ---- Segments ---------------------------------------------------------------------------------

Result<mc_transfer_segment> Engine::open_segment(const std::string& name,
                                                 std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  const auto address = names_->find(name, deadline_ns);  // without the lock: the store may be slow
  if (!address) return fail(address.error());
  Loop::Turn turn(loop_);
  EnginePeer* const peer = peers_.open(name, *address, deadline_ns);
  if (peer == nullptr) return fail(too_many_segments());
  const std::uint64_t losses = peer->losses;
  ++peer->users;
  const bool in_time = loop_.wait_until(peer->changed, deadline_ns, [&] {
    return peer->state == EnginePeer::State::kReady || peer->losses != losses ||
           peer->state == EnginePeer::State::kUnknown;
  });
  --peer->users;
  if (peer->state == EnginePeer::State::kReady) return peer->id;
  if (in_time) return fail(peer->failure);
  return fail(MC_TIMEOUT,
              "the engine at " + text_of(peer->address) + " did not tell its memory in time");
}

Status Engine::close_segment(mc_transfer_segment segment) {
  Loop::Turn turn(loop_);
  EnginePeer* const peer = peers_.find(segment);
  if (peer == nullptr) return no_segment();
  if (peer->users > 0) return {MC_BUSY, "another call waits for this segment"};
  const Status why(MC_CANCELLED, "its segment was closed");
  batches_.cancel_segment(segment, why);
  peers_.close(*peer, why);
  return {};
}

Status Engine::probe(const std::string& name, std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  const auto address = names_->find(name, deadline_ns);
  if (!address) return address.error();
  Loop::Turn turn(loop_);
  EnginePeer* const peer = peers_.open_probe(name, *address, deadline_ns);
  if (peer == nullptr) return too_many_segments();
  const bool in_time = loop_.wait_until(peer->changed, deadline_ns, [&] {
    return peer->state == EnginePeer::State::kReady || peer->state == EnginePeer::State::kUnknown;
  });
  Status status = !in_time ? Status(MC_TIMEOUT, "no engine answered the probe in time")
                  : peer->state == EnginePeer::State::kReady ? Status()
                                                             : peer->failure;
  peers_.close(*peer, {});
  return status;
}

Result<Directory> Engine::list_regions(mc_transfer_segment segment, std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  Loop::Turn turn(loop_);
  EnginePeer* const peer = peers_.find(segment);
  if (peer == nullptr) return fail(no_segment());
  const std::uint64_t read = peer->tables_read;
  const std::uint64_t losses = peer->losses;
  ++peer->users;
  if (peer->state == EnginePeer::State::kUnknown) {
    peers_.introduce(*peer, deadline_ns);
  } else {
    peers_.read_table(*peer);
  }
  const bool in_time = loop_.wait_until(peer->changed, deadline_ns, [&] {
    return peer->tables_read != read || peer->losses != losses;
  });
  --peer->users;
  if (!in_time) return fail(MC_TIMEOUT, "the peer's region table did not arrive in time");
  if (peer->tables_read == read) return fail(peer->failure);
  return peer->directory;
}

Result<bool> Engine::is_local(mc_transfer_segment segment) {
  Loop::Turn turn(loop_);
  EnginePeer* const peer = peers_.find(segment);
  if (peer == nullptr) return fail(no_segment());
  return peer->same_host != nullptr;
}

// ---- Batches ----------------------------------------------------------------------------------

Result<mc_transfer_batch> Engine::submit(std::span<const mc_transfer_request> requests,
                                         const SubmitOptions& options) {
  auto batch = make_batch(requests, options);
  if (!batch) return fail(batch.error());
  const std::span<Request> given((*batch)->requests.data(), requests.size());
  if (Status staged = devices_.stage(given); !staged.ok()) return fail(staged);
  if (options.checksum) add_checks(**batch);
  (*batch)->deadline_ns =
      now_ns() + (options.timeout_ns != 0 ? options.timeout_ns : options_.timeout_ns);
  Loop::Turn turn(loop_);
  const Batch* const submitted = batches_.submit(&*batch, options.waits);
  if (submitted != nullptr) return submitted->id;
  devices_.release(given);
  return fail(MC_BUSY, "65536 batches are open (MC_MAX_TRANSFER_BATCHES); free the ended batches");
}

Status Engine::poll(mc_transfer_batch id, bool* ended, mc_transfer_status* statuses,
                    std::size_t count) {
  Loop::Turn turn(loop_);
  Batch* const batch = batches_.find(id);
  if (batch == nullptr) return no_batch();
  if (!batch->ended()) loop_.step_if_idle();
  *ended = batch->ended();
  if (statuses == nullptr) return {};
  if (count < batch->given()) {
    return {MC_INVALID_ARGUMENT, "statuses needs room for every request"};
  }
  for (std::size_t i = 0; i < batch->given(); ++i) {
    const Request& request = batch->requests[i];
    const bool over = request.state == Request::State::kEnded;
    statuses[i] = {request.status, over ? 1u : 0u, over ? request.bytes : 0};
  }
  return {};
}

Status Engine::wait(mc_transfer_batch id, std::uint64_t timeout_ns) {
  Loop::Turn turn(loop_);
  Batch* const batch = batches_.find(id);
  if (batch == nullptr) return no_batch();
  const std::uint64_t deadline_ns =
      timeout_ns != 0 ? now_ns() + timeout_ns : batch->deadline_ns + kGraceNs;
  batches_.hold(*batch);
  copier_.copy_all(*batch, deadline_ns);
  const bool in_time =
      loop_.wait_until(batch->changed, deadline_ns, [&] { return batch->ended(); });
  Status status = !in_time        ? Status(MC_TIMEOUT, "the batch has not ended yet")
                  : batch->failed ? batch->first_failure
                                  : Status();
  batches_.leave(*batch);
  return status;
}

Status Engine::cancel(mc_transfer_batch id) {
  Loop::Turn turn(loop_);
  Batch* const batch = batches_.find(id);
  if (batch == nullptr) return no_batch();
  batches_.cancel(*batch, {MC_CANCELLED, "the batch was cancelled"});
  return {};
}

Status Engine::free(mc_transfer_batch id) {
  Loop::Turn turn(loop_);
  Batch* const batch = batches_.find(id);
  if (batch == nullptr) return no_batch();
  if (!batch->ended()) return {MC_BUSY, "the batch has not ended; cancel it and wait first"};
  batches_.free(*batch);
  return {};
}

Status Engine::finish(mc_transfer_batch id) {
  Status waited = wait(id, 0);
  // A request past the deadline ends when the memory is no longer used. The caller may reuse the
  // memory after this call, so wait.
  for (int tries = 0; free(id).code() == MC_BUSY; ++tries) {
    if (tries == kMaxGraces) return {MC_INTERNAL, "a batch did not end after its deadline"};
    waited = wait(id, kGraceNs);
  }
  return waited;
}

bool Engine::take_notification(Notification* notification) {
  Loop::Turn turn(loop_);
  if (notifications_.empty()) loop_.step_if_idle();
  return notifications_.take(notification);
}

}  // namespace mc::transfer
