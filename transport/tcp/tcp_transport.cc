// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "transport/tcp/socket.h"

namespace mc::transport::tcp {

namespace {
constexpr int kMaxEdges = 128;
constexpr std::uint64_t kSlowLookNs = 100'000'000;
}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(const TcpOptions& options,
                                                           Dialer& dialer) {
  if (options.node == 0) return fail(MC_INVALID_ARGUMENT, "a transport needs its node's id");
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
  return std::unique_ptr<TcpTransport>(new TcpTransport(options, dialer, std::move(epoll)));
}

TcpTransport::TcpTransport(const TcpOptions& options, Dialer& dialer, Fd epoll)
    : options_(options),
      epoll_(std::move(epoll)),
      regions_(options.node * 0x9e3779b97f4a7c15u ^ options.incarnation),
      requester_(*this, dialer, counters_, options.max_asked_bytes) {}

TcpTransport::~TcpTransport() = default;

const Capabilities& TcpTransport::capabilities() const {
  static const Capabilities kCapabilities{
      .name = "tcp",
      .write = true,
      .notify = true,
      .one_sided = false,
      .checks_generation = true,
      .registers_pieces = false,
      .memory_kinds = 1u << static_cast<unsigned>(MemoryKind::kHost),
      .max_operations = kMaxOperations,
      .max_pieces = kMaxPieces,
      .max_notification_bytes = kMaxNotificationBytes,
      .max_operation_bytes = kMaxOperationBytes,
  };
  return kCapabilities;
}

Result<RegionId> TcpTransport::register_region(const RegionSpec& spec) {
  if (spec.kind != MemoryKind::kHost) {
    return fail(MC_UNSUPPORTED, "the tcp transport reads and writes host memory only");
  }
  return regions_.add(spec);
}

Result<std::vector<std::byte>> TcpTransport::describe(RegionId region) const {
  return regions_.describe(region);
}

Result<RemoteRegionId> TcpTransport::import_region(PeerId, std::span<const std::byte> text) {
  const auto region = RegionTable::decode_descriptor(text);
  if (!region) return fail(MC_INVALID_ARGUMENT, "this does not describe a region of a tcp peer");
  return *region;
}

Result<PeerId> TcpTransport::connect(const PeerSpec& spec) { return requester_.connect(spec); }

Status TcpTransport::attach(Link link) {
  if (!options_.congestion_control.empty()) {
    Status told = use_congestion_control(link.socket.get(), options_.congestion_control);
    if (!told.ok()) return told;
  }
  if (!link.accepted) return requester_.attach(std::move(link), now_ns_);
  if (serving_.size() >= kMaxServedLanes) {
    return {MC_BUSY, "the limit of served lanes is reached; the peer tries again"};
  }
  Status status = prepare_lane(link.socket.get());
  if (!status.ok()) return status;
  ServingSink& sink = *this;
  if (link.lane >= kMaxLanes) return {MC_INVALID_ARGUMENT, "a peer has at most 17 lanes"};
  auto lane = std::make_unique<ServingLane>(std::move(link), sink, options_.zero_copy_min_bytes);
  status = watch(lane.get());
  if (!status.ok()) return status;
  serving_.emplace(lane.get(), std::move(lane));
  return {};
}

void TcpTransport::dial_failed(PeerId peer, std::uint32_t lane) {
  requester_.dial_failed(peer, lane, now_ns_);
}

std::size_t TcpTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  return requester_.submit(operations, now_ns);
}

// ---- The loop ---------------------------------------------------------------------------------

Status TcpTransport::watch(Lane* lane) {
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  event.data.ptr = lane;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane->socket(), &event) != 0) {
    return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
  }
  wake(lane);
  return {};
}

void TcpTransport::wake(Lane* lane) {
  if (lane->listed) return;
  lane->listed = true;
  ready_.push_back(lane);
}

void TcpTransport::forget(Lane* lane) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane->socket(), nullptr);
  std::ranges::replace(ready_, lane, nullptr);
  std::ranges::replace(working_, lane, nullptr);
}

void TcpTransport::take_edges() {
  epoll_event edges[kMaxEdges];
  const int count = ::epoll_wait(epoll_.get(), edges, kMaxEdges, 0);
  for (int i = 0; i < count; ++i) {
    auto* lane = static_cast<Lane*>(edges[i].data.ptr);
    lane->on_edge(edges[i].events);
    wake(lane);
  }
}

void TcpTransport::work_lanes(std::uint64_t now_ns) {
  working_.swap(ready_);
  for (std::size_t i = 0; i < working_.size(); ++i) {
    Lane* lane = working_[i];
    if (lane == nullptr) continue;
    lane->listed = false;
    const Lane::Turn turn = lane->work(now_ns);
    if (turn == Lane::Turn::kFailed) {
      lane->on_failed(now_ns);
    } else if (turn == Lane::Turn::kGoesOn) {
      wake(lane);
    }
  }
  working_.clear();
}

void TcpTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = std::max(now_ns_, now_ns);
  take_edges();
  work_lanes(now_ns_);
  requester_.tick(now_ns_);
  requester_.pump_all(now_ns_);
  if (now_ns_ >= next_slow_look_ns_) cut_slow_lanes(now_ns_);
  hand_out(events);
}

void TcpTransport::cut_slow_lanes(std::uint64_t now_ns) {
  next_slow_look_ns_ = now_ns + kSlowLookNs;
  std::erase_if(serving_, [&](auto& entry) {
    if (entry.first->keeps_pace(now_ns)) return false;
    forget(entry.first);
    return true;
  });
}

std::uint64_t TcpTransport::next_poll_ns() const {
  if (!ready_.empty() || !arrived_.empty() || requester_.has_events()) return 0;
  const std::uint64_t tick = requester_.next_tick_ns();
  return serving_.empty() ? tick : std::min(tick, next_slow_look_ns_);
}

void TcpTransport::hand_out(std::vector<Event>& events) {
  auto& own = requester_.events();
  events.insert(events.end(), own.begin(), own.end());
  own.clear();
  arrived_.take(events);
}

// ---- Serving ----------------------------------------------------------------------------------

bool TcpTransport::on_notification(NodeId from, std::span<const std::byte> payload) {
  if (arrived_.is_full()) return false;
  arrived_.add(from, {payload.begin(), payload.end()});
  return true;
}

void TcpTransport::on_serving_failed(ServingLane& lane) {
  forget(&lane);
  serving_.erase(&lane);
}

Outcome TcpTransport::on_cut(const ServingLane& asker, std::uint32_t lane, std::uint32_t serial) {
  if (cut_lanes_.size() >= kMaxPeers && !cut_lanes_.contains(asker.node())) {
    std::erase_if(cut_lanes_, [this](const auto& cut) {
      return std::ranges::none_of(
          serving_, [&](const auto& served) { return served.first->node() == cut.first; });
    });
    if (cut_lanes_.size() >= kMaxPeers) return Outcome::kBusy;
  }
  CutLanes& cut = cut_lanes_[asker.node()];
  if (cut.incarnation != asker.incarnation()) cut = {asker.incarnation(), {}};
  cut.serials[lane] = std::max(cut.serials[lane], serial);
  std::vector<ServingLane*> ended;
  for (const auto& [served, owned] : serving_) {
    // A lane that names itself ends with the next write.
    if (served != &asker && served->serial() != 0 && is_cut(*served)) ended.push_back(served);
  }
  for (ServingLane* served : ended) on_serving_failed(*served);
  return Outcome::kDone;
}

bool TcpTransport::is_cut(const ServingLane& lane) const {
  const auto cut = cut_lanes_.find(lane.node());
  return cut != cut_lanes_.end() && cut->second.incarnation == lane.incarnation() &&
         lane.serial() <= cut->second.serials[lane.index()];
}

}  // namespace mc::transport::tcp
