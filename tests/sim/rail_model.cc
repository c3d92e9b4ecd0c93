// SPDX-License-Identifier: Apache-2.0
#include "sim/rail_model.h"

#include <algorithm>
#include <cmath>

namespace mc::sim {

using transport::kPriorityCount;
using transport::Priority;

namespace {
constexpr std::uint64_t kPacketBytes = 16 * 1024;
constexpr std::uint64_t kLookNs = 500'000;
constexpr std::uint64_t kProbeBytes = 64;
constexpr std::uint64_t kProbeTimeoutNs = 1'000'000;
}  // namespace

RailModel::RailModel(const RailModelOptions& options)
    : options_(options),
      credits_(options.nics),
      port_free_ns_(options.nics),
      nic_bytes_(options.nics) {
  for (std::uint32_t s = 0; s < options_.senders; ++s) {
    auto peer = std::make_unique<Peer>(options_.nics);
    for (std::uint32_t i = 0; i < options_.nics; ++i) {
      // As ports report rates and handshakes report round trips.
      peer->rails.set_traits(i, {.bytes_per_ns = options_.line_bytes_per_ns,
                                 .latency_ns = 2 * options_.one_way_ns,
                                 .local_nic = i});
      peer->rails.on_up(i);
    }
    if (options_.credits) peer->rails.share(&credits_);
    peers_.push_back(std::move(peer));
  }
  // All peers together get the credit of a single peer.
  for (std::uint32_t i = 0; i < options_.nics; ++i) {
    credits_.set_budget(i, peers_[0]->rails.window_bytes(i));
  }
  at(kLookNs, [this] { look(); });
}

void RailModel::at(std::uint64_t when_ns, std::function<void()> what) {
  events_.push({std::max(when_ns, now_ns_), order_++, std::move(what)});
}

void RailModel::run_until(std::uint64_t until_ns) {
  while (!events_.empty() && events_.top().at_ns <= until_ns) {
    Event event = events_.top();
    events_.pop();
    now_ns_ = event.at_ns;
    event.what();
  }
  now_ns_ = until_ns;
}

void RailModel::mark() {
  marked_ns_ = now_ns_;
  std::ranges::fill(nic_bytes_, 0);
  for (Load& load : loads_) {
    load.done_bytes = 0;
    load.latencies_ns.clear();
  }
}

RailModel::Result RailModel::result(Priority priority) const {
  const Load& load = loads_[static_cast<std::size_t>(priority)];
  Result result;
  result.objects = load.latencies_ns.size();
  result.bytes = load.done_bytes;
  result.bytes_per_ns =
      static_cast<double>(load.done_bytes) / static_cast<double>(now_ns_ - marked_ns_);
  if (load.latencies_ns.empty()) return result;
  std::vector<std::uint64_t> sorted = load.latencies_ns;
  std::ranges::sort(sorted);
  result.p50_ns = sorted[sorted.size() / 2];
  result.p99_ns = sorted[sorted.size() * 99 / 100];
  result.max_ns = sorted.back();
  return result;
}

void RailModel::set_speed(std::uint64_t at_ns, std::uint32_t sender, std::uint32_t nic,
                          double share) {
  at(at_ns, [this, sender, nic, share] { peers_[sender]->lines[nic].share = share; });
}

// ---- The receiver -----------------------------------------------------------------------------

void RailModel::keep_reading(Priority priority, std::uint32_t objects, std::uint64_t bytes,
                             std::uint64_t near) {
  Load& load = loads_[static_cast<std::size_t>(priority)];
  load.bytes = bytes;
  load.near = near;
  for (std::uint32_t i = 0; i < objects; ++i) {
    // Do not start all objects in the same instant.
    at(now_ns_ + i * 300, [this, priority] { begin_object(priority); });
  }
}

void RailModel::begin_object(Priority priority) {
  const std::uint32_t sender = next_sender_;
  next_sender_ = (next_sender_ + 1) % options_.senders;
  auto object = std::make_shared<Object>();
  object->priority = priority;
  object->size = loads_[static_cast<std::size_t>(priority)].bytes;
  object->begun_ns = now_ns_;
  Peer& peer = *peers_[sender];
  auto& waiting = peer.waiting[static_cast<std::size_t>(priority)];
  if (waiting.empty()) peer.turns.arrived(priority);
  waiting.push_back(std::move(object));
  pump(sender);
}

bool RailModel::ask(std::uint32_t sender, const SlicePtr& slice) {
  Peer& peer = *peers_[sender];
  const Priority priority = slice->sent.priority;
  const auto rail = peer.rails.choose(slice->sent.bytes,
                                      loads_[static_cast<std::size_t>(priority)].near, priority);
  if (!rail) {
    if (!peer.waits_for_credit && peer.rails.lacks_credit(slice->sent.bytes, priority)) {
      peer.waits_for_credit = true;
      waiting_for_credit_.push_back(sender);
    }
    return false;
  }
  slice->nic = static_cast<std::uint32_t>(*rail);
  slice->epoch = peer.epochs[*rail];
  slice->sent.sent_ns = now_ns_;
  peer.rails.on_sent(*rail, slice->sent);
  peer.open[*rail].push_back(slice);
  send(slice);
  return true;
}

void RailModel::pump(std::uint32_t sender) {
  Peer& peer = *peers_[sender];
  while (!peer.resend.empty()) {
    if (!ask(sender, peer.resend.front())) return;
    ++slices_resent_;
    peer.resend.pop_front();
  }
  std::uint32_t waiting = 0;
  for (std::uint32_t i = 0; i < kPriorityCount; ++i) {
    if (!peer.waiting[i].empty()) waiting |= 1u << i;
  }
  while (const auto priority = peer.turns.next(waiting)) {
    const auto i = static_cast<std::size_t>(*priority);
    auto& queue = peer.waiting[i];
    const std::shared_ptr<Object> object = queue.front();
    const std::uint64_t left = object->size - object->cut;
    auto slice = std::make_shared<Slice>();
    slice->object = object;
    slice->sender = sender;
    slice->sent.priority = *priority;
    slice->sent.bytes = std::min<std::uint64_t>(left, peer.rails.slice_bytes(object->size));
    if (!ask(sender, slice)) {
      waiting &= ~(1u << i);
      continue;
    }
    peer.turns.took(*priority, slice->sent.bytes);
    object->cut += slice->sent.bytes;
    queue.pop_front();
    if (object->cut < object->size) queue.push_back(object);
    if (queue.empty()) waiting &= ~(1u << i);
  }
}

// The peer that has waited longest gets the freed credit.
void RailModel::serve_waiting() {
  for (std::size_t i = waiting_for_credit_.size(); i > 0; --i) {
    const std::uint32_t sender = waiting_for_credit_.front();
    waiting_for_credit_.pop_front();
    peers_[sender]->waits_for_credit = false;
    pump(sender);
  }
}

void RailModel::finish(const SlicePtr& slice) {
  Peer& peer = *peers_[slice->sender];
  if (slice->epoch != peer.epochs[slice->nic]) return;
  if (!slice->object) {
    peer.rails.on_up(slice->nic);
    pump(slice->sender);
    return;
  }
  std::erase(peer.open[slice->nic], slice);
  peer.rails.on_done(slice->nic, slice->sent, now_ns_);
  nic_bytes_[slice->nic] += slice->sent.bytes;
  Object& object = *slice->object;
  object.done += slice->sent.bytes;
  serve_waiting();
  if (object.done == object.size) {
    Load& load = loads_[static_cast<std::size_t>(object.priority)];
    load.done_bytes += object.size;
    load.latencies_ns.push_back(now_ns_ - object.begun_ns);
    begin_object(object.priority);
  }
  pump(slice->sender);
}

void RailModel::fail_rail(std::uint32_t sender, std::uint32_t nic) {
  Peer& peer = *peers_[sender];
  ++peer.epochs[nic];
  peer.rails.on_failed(nic, now_ns_);
  for (const SlicePtr& old : peer.open[nic]) {
    auto again = std::make_shared<Slice>();
    again->object = old->object;
    again->sender = sender;
    again->sent = old->sent;
    peer.resend.push_back(std::move(again));
  }
  peer.open[nic].clear();
  peer.lines[nic].queue.clear();
}

// The timer of a transport.
void RailModel::look() {
  for (std::uint32_t s = 0; s < options_.senders; ++s) {
    Peer& peer = *peers_[s];
    while (const auto rail = peer.rails.stalled(now_ns_)) {
      fail_rail(s, static_cast<std::uint32_t>(*rail));
    }
    while (const auto rail = peer.rails.probe(now_ns_)) {
      auto probe = std::make_shared<Slice>();
      probe->sender = s;
      probe->nic = static_cast<std::uint32_t>(*rail);
      probe->epoch = peer.epochs[*rail];
      probe->sent.bytes = kProbeBytes;
      send(probe);
      at(now_ns_ + kProbeTimeoutNs, [this, probe] {
        Peer& of = *peers_[probe->sender];
        const bool late = of.epochs[probe->nic] == probe->epoch && !of.rails.is_up(probe->nic);
        if (late) fail_rail(probe->sender, probe->nic);
      });
    }
    pump(s);
  }
  at(now_ns_ + kLookNs, [this] { look(); });
}

// ---- The network ------------------------------------------------------------------------------

void RailModel::send(const SlicePtr& slice) {
  slice->left = slice->sent.bytes;
  slice->came = 0;
  slice->broken = false;
  at(now_ns_ + options_.one_way_ns, [this, slice] {
    Line& line = peers_[slice->sender]->lines[slice->nic];
    line.queue.push_back(slice);
    if (!line.sending) send_packet(slice->sender, slice->nic);
  });
}

void RailModel::send_packet(std::uint32_t sender, std::uint32_t nic) {
  Line& line = peers_[sender]->lines[nic];
  line.sending = false;
  if (line.share <= 0) line.queue.clear();
  if (line.queue.empty()) return;
  const SlicePtr slice = line.queue.front();
  const std::uint64_t bytes = std::min(slice->left, kPacketBytes);
  slice->left -= bytes;
  if (slice->left == 0) line.queue.pop_front();
  const double took_ns = static_cast<double>(bytes) / (options_.line_bytes_per_ns * line.share);
  const auto gone_ns = now_ns_ + static_cast<std::uint64_t>(std::ceil(took_ns));
  at(gone_ns + options_.one_way_ns, [this, slice, bytes] { arrive(slice, bytes); });
  line.sending = true;
  at(gone_ns, [this, sender, nic] { send_packet(sender, nic); });
}

// At the last switch, before the receiver's NIC.
void RailModel::arrive(const SlicePtr& slice, std::uint64_t bytes) {
  if (peers_[slice->sender]->lines[slice->nic].share <= 0) return;
  const auto now = static_cast<double>(now_ns_);
  double& free_ns = port_free_ns_[slice->nic];
  const double held = std::max(free_ns - now, 0.0) * options_.line_bytes_per_ns;
  const bool last = slice->came + bytes == slice->sent.bytes;
  slice->came += bytes;
  const double every = options_.lost_packets > 0 ? 1 / options_.lost_packets : 0;
  ++packets_;
  if (held + static_cast<double>(bytes) > static_cast<double>(options_.port_buffer_bytes) ||
      (every > 0 && packets_ % static_cast<std::uint64_t>(every) == 0)) {
    ++packets_lost_;
    slice->broken = true;
  } else {
    free_ns = std::max(free_ns, now) + static_cast<double>(bytes) / options_.line_bytes_per_ns;
  }
  if (!last) return;
  if (slice->broken) {
    at(now_ns_ + options_.retransmit_ns, [this, slice] { send(slice); });
    return;
  }
  at(static_cast<std::uint64_t>(std::ceil(free_ns)), [this, slice] { finish(slice); });
}

}  // namespace mc::sim
