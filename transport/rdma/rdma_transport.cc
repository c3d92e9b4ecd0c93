// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/rdma_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "libmc/base/hash.h"

namespace mc::transport::rdma {

namespace {

// The time between two looks for devices: while a device is missing, and otherwise. A look reads
// sysfs.
constexpr std::uint64_t kMissingScanNs = 1'000'000'000;
constexpr std::uint64_t kScanNs = 4'000'000'000;
// After the last completion, devices are only polled for so long; then they notify by descriptor.
constexpr std::uint64_t kBusyNs = 50'000;
constexpr std::uint64_t kEdgesNs = 200'000;  // between two looks at links when busy
constexpr int kCompletionsAtOnce = 64;
constexpr int kMostRounds = 16;  // of a poll, so that notifications cannot block the loop

// Calls visit(name, device) for each RDMA device of this host.
template <typename Visit>
void each_device(const Verbs& verbs, Visit visit) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  if (list == nullptr) return;
  for (int i = 0; i < count; ++i) visit(std::string(verbs.get_device_name(list[i])), list[i]);
  verbs.free_device_list(list);
}

}  // namespace

Result<std::unique_ptr<RdmaTransport>> RdmaTransport::create(const RdmaOptions& options,
                                                             const Verbs& verbs, Dialer& dialer) {
  if (options.node == 0) return fail(MC_INVALID_ARGUMENT, "a transport needs its node's id");
  if (options.bulk_pairs == 0 || options.bulk_pairs > 7 || options.devices.size() > kMaxDevices) {
    return fail(MC_INVALID_ARGUMENT, "1 to 7 bulk pairs a rail, and at most 16 RDMA devices");
  }
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
  auto wakeup = make_eventfd();
  if (!wakeup) return fail(wakeup.error());
  std::unique_ptr<RdmaTransport> made(
      new RdmaTransport(options, verbs, dialer, std::move(epoll), std::move(*wakeup)));
  Status watched = made->edges_.watch(made->opener_.fd(), &made->opener_, Edges::Kind::kReadable);
  if (!watched.ok()) return fail(std::move(watched));
  made->find_devices();
  if (std::ranges::none_of(made->devices_, [](const auto& device) { return device != nullptr; })) {
    const std::string why = made->obstacles();
    return fail(MC_UNSUPPORTED, why.empty() ? "no RDMA: this host has no RDMA device"
                                            : "no RDMA device can be used: " + why);
  }
  return made;
}

RdmaTransport::RdmaTransport(const RdmaOptions& options, const Verbs& verbs, Dialer& dialer,
                             Fd epoll, Fd wakeup)
    : options_(options),
      verbs_(verbs),
      edges_(std::move(epoll)),
      registrar_(options_, devices_),
      regions_(options_.node, options_.incarnation, options_.registering_threads, registrar_,
               opener_),
      opener_(options_.opening_threads, std::move(wakeup)),
      backend_(options_, devices_, regions_, opener_, requester_),
      requester_(Backend::traits(options_), edges_, dialer, counters_, backend_),
      responder_(options_, devices_, regions_, edges_, opener_,
                 [this](const Device& device) { drain(device); }) {
  for (const std::string& name : options_.devices) slots_.push_back({name, {}, 0, nullptr});
}

RdmaTransport::~RdmaTransport() = default;

const Capabilities& RdmaTransport::capabilities() const {
  static const Capabilities kCapabilities{
      .name = "rdma",
      .write = true,
      .notify = true,
      .one_sided = true,
      .checks_generation = false,
      .registers_pieces = true,
      .memory_kinds = 1u << static_cast<unsigned>(MemoryKind::kHost) |
                      1u << static_cast<unsigned>(MemoryKind::kDevice),
      .max_operations = kMaxOperations,
      .max_pieces = kMaxPieces,
      .max_notification_bytes = kMaxOneSidedNotificationBytes,
      .max_operation_bytes = kMaxOperationBytes,
  };
  return kCapabilities;
}

Status RdmaTransport::attach(Link link) {
  return link.accepted ? responder_.attach(std::move(link))
                       : requester_.attach(std::move(link), now_ns_);
}

std::size_t RdmaTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  return requester_.submit(operations, now_ns_);
}

// ---- Devices ----------------------------------------------------------------------------------

void RdmaTransport::find_devices() {
  bool any = false;
  std::array<bool, kMaxDevices> listed{};
  each_device(verbs_, [&](const std::string& name, ibv_device* device) {
    auto at = std::ranges::find(slots_, name, &Slot::name);
    if (at == slots_.end()) {
      if (!options_.devices.empty() || slots_.size() >= kMaxDevices) return;
      slots_.push_back({name, {}, 0, nullptr});
      at = slots_.end() - 1;
    }
    const auto slot = static_cast<std::size_t>(at - slots_.begin());
    listed[slot] = true;
    if (devices_[slot]) return;
    const Status status = open_device(slot, device);
    at->why = status.ok() ? "" : std::string(status.text());
    any = any || status.ok();
  });
  bool all = true;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    // A driver that cannot remove a device that is in use waits silently until all users close the
    // device.
    if (devices_[slot] && !listed[slot]) {
      slots_[slot].why = "RDMA device " + slots_[slot].name + " is being removed";
      close_device(slot, now_ns_);
      any = true;
    }
    all = all && devices_[slot];
  }
  next_scan_ns_ = now_ns_ + (all ? kScanNs : kMissingScanNs);
  if (!any) return;
  backend_.lanes().on_devices_changed();
  responder_.announce();
}

Status RdmaTransport::open_device(std::size_t slot, ibv_device* device) {
  Slot& at = slots_[slot];
  const std::uint64_t words[3] = {options_.incarnation, slot, ++at.opened_count};
  auto opened =
      Device::open(verbs_, device, options_, hash_key(words, sizeof words, options_.node) | 1);
  if (!opened) return opened.error();
  devices_[slot] = std::move(*opened);
  at.events = std::make_unique<DeviceEvents>(*this, slot);
  Status status = regions_.on_opened(slot);
  if (status.ok()) {
    status = edges_.watch(devices_[slot]->event_fd(), at.events.get(), Edges::Kind::kReadable);
  }
  if (status.ok()) {
    status = edges_.watch(devices_[slot]->async_fd(), at.events.get(), Edges::Kind::kReadable);
  }
  if (!status.ok()) close_device(slot, now_ns_);
  return status;
}

void RdmaTransport::close_device(std::size_t slot, std::uint64_t now_ns) {
  Device& device = *devices_[slot];
  opener_.finish(&device);
  take_completions(slot);
  backend_.lanes().on_closing(device, now_ns);
  responder_.on_closing(device);
  regions_.on_closing(slot);
  edges_.forget(device.event_fd(), slots_[slot].events.get());
  edges_.forget(device.async_fd(), slots_[slot].events.get());
  devices_[slot].reset();
}

void RdmaTransport::on_device_event(std::size_t slot, std::uint64_t now_ns) {
  Device* device = devices_[slot].get();
  if (device == nullptr) return;
  device->take_events();
  ibv_async_event event{};
  bool is_gone = false;
  while (!is_gone && verbs_.get_async_event(device->context(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    verbs_.ack_async_event(&event);
    if (type == IBV_EVENT_DEVICE_FATAL) is_gone = true;
    // Requests that were posted to a port that is down do not come back soon.
    if (type == IBV_EVENT_PORT_ERR) backend_.lanes().on_closing(*device, now_ns);
    if (type == IBV_EVENT_PORT_ACTIVE) requester_.look_soon();
    // The failure of a queue pair comes as a completion, or as silence.
    const bool is_address = type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_LID_CHANGE;
    if (is_address && !device->address_holds()) is_gone = true;
  }
  if (!is_gone) return;
  slots_[slot].why = "the device was removed, or its address changed";
  close_device(slot, now_ns);
  responder_.announce();
  next_scan_ns_ = now_ns;
}

std::string RdmaTransport::describe_devices() const {
  std::string text;
  for (const auto& device : devices_) {
    if (device) text += (text.empty() ? "" : ", ") + device->name();
  }
  return text;
}

std::string RdmaTransport::obstacles() const {
  std::string text;
  for (const Slot& slot : slots_) {
    const auto at = static_cast<std::size_t>(&slot - slots_.data());
    if (devices_[at]) continue;
    if (!text.empty()) text += "; ";
    text += slot.why.empty() ? "there is no RDMA device " + slot.name : slot.why;
  }
  return text;
}

std::string RdmaTransport::describe_rails(PeerId id) const {
  const one_sided::OneSidedPeer* peer = requester_.peers().find(id);
  return peer == nullptr ? "" : backend_.lanes().describe(static_cast<const RdmaPeer&>(*peer));
}

// ---- The loop ---------------------------------------------------------------------------------

bool RdmaTransport::take_completions(std::size_t slot) {
  std::array<ibv_wc, kCompletionsAtOnce> completions;
  Device& device = *devices_[slot];
  bool any = false;
  for (int round = 0; round < kMostRounds; ++round) {
    const int count = device.poll(completions);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      if ((completion.wr_id & kReceiveMark) != 0) {
        take_received(slot, completion);
      } else if (i + 1 == count || !Lane::says_all_of(*(&completion + 1), completion)) {
        backend_.lanes().on_completion(completion, now_ns_);
      }
    }
    any = any || count > 0;
    if (count < kCompletionsAtOnce) break;
  }
  return any;
}

void RdmaTransport::drain(const Device& device) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (devices_[slot].get() == &device) take_completions(slot);
  }
}

void RdmaTransport::take_received(std::size_t slot, const ibv_wc& completion) {
  Device& device = *devices_[slot];
  const auto from = responder_.sender(device, completion.qp_num);
  if (completion.status != IBV_WC_SUCCESS || !from || completion.byte_len == 0) {
    device.repost(completion.wr_id);
    return;
  }
  const auto payload = device.received(completion.wr_id, completion.byte_len);
  arrived_.add(*from, {payload.begin(), payload.end()});
  device.repost(completion.wr_id);
}

// Requests notification before the loop sleeps, and takes the completions that came in between.
void RdmaTransport::arm() {
  if (now_ns_ < busy_ns_ + kBusyNs) return;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!devices_[slot] || devices_[slot]->armed()) continue;
    devices_[slot]->arm();
    if (take_completions(slot)) busy_ns_ = now_ns_;
  }
}

void RdmaTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = std::max(now_ns_, now_ns);
  bool worked = false;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (devices_[slot] && take_completions(slot)) worked = true;
  }
  if (worked) busy_ns_ = now_ns_;
  if (!worked || now_ns_ >= next_edges_ns_) {
    edges_.take(now_ns_);
    next_edges_ns_ = now_ns_ + kEdgesNs;
  }
  if (now_ns_ >= next_scan_ns_) find_devices();
  requester_.tick(now_ns_);
  requester_.pump_all(now_ns_);
  arm();
  hand_out(events);
}

std::uint64_t RdmaTransport::next_poll_ns() const {
  const bool awake = std::ranges::any_of(
      devices_, [](const auto& device) { return device != nullptr && !device->armed(); });
  if (awake || !arrived_.empty() || requester_.has_events()) return 0;
  return std::min(requester_.next_tick_ns(), next_scan_ns_);
}

void RdmaTransport::hand_out(std::vector<Event>& events) {
  auto& own = requester_.events();
  events.insert(events.end(), own.begin(), own.end());
  own.clear();
  arrived_.take(events);
}

}  // namespace mc::transport::rdma
