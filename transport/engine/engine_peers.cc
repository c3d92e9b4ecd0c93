// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that finds peers, and reads their region tables.
#include <algorithm>

#include "libmc/base/clock.h"
#include "transport/engine/engine.h"

namespace mc::transfer {

namespace {

constexpr int kTornReads = 100;  // of a table, in a row
constexpr std::uint64_t kTableNs = 2'000'000'000;
constexpr std::size_t kFirstTableBytes = kDirectoryHeadBytes + 64 * kDirectoryEntryBytes;

// By our clock, or by that of the peer, which then hangs up.
bool took_too_long(const Peer& peer, const Status& why) {
  return why.code() == MC_TIMEOUT ||
         (why.code() == MC_AGENT_UNAVAILABLE &&
          now_ns() - peer.introduced_ns >= transport::kHandshakeTimeoutNs / 2);
}

}  // namespace

Peer* Engine::find_peer(mc_transfer_segment segment) {
  const std::uint32_t slot = slot_of(segment);
  return segment != 0 && slot < peers_.size() && peers_[slot] && peers_[slot]->id == segment
             ? peers_[slot].get()
             : nullptr;
}

const Address* Engine::address_of(transport::NodeId node) const {
  for (const auto& peer : peers_) {
    if (peer && peer->engine_descriptor.node == node && peer->transport_id != transport::kNoPeer) {
      return &peer->address;
    }
  }
  return nullptr;
}

// ---- Segments ---------------------------------------------------------------------------------

Result<mc_transfer_segment> Engine::open_segment(const std::string& name,
                                                 std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  // The store is asked without the lock: it may take its time.
  auto address = names_->find(name, deadline_ns);
  if (!address) return fail(address.error());
  Lock lock = lock_in();
  Peer* peer = nullptr;
  for (const auto& known : peers_) {
    if (known && known->name == name && !known->probe) peer = known.get();
  }
  if (peer == nullptr) {
    std::uint32_t slot = 0;
    while (slot < peers_.size() && peers_[slot]) ++slot;
    if (slot >= MC_MAX_TRANSFER_SEGMENTS) {
      return fail(MC_BUSY, "an engine has at most 4096 segments open (MC_MAX_TRANSFER_SEGMENTS)");
    }
    if (slot == peers_.size()) {
      peers_.emplace_back();
      peer_generations_.push_back(0);
    }
    peers_[slot] = std::make_unique<Peer>();
    peer = peers_[slot].get();
    peer->id = (std::uint64_t{++peer_generations_[slot]} << 32) | (slot + 1);
    peer->name = name;
  }
  if (peer->state == Peer::State::kUnknown || peer->address != *address) {
    if (peer->state != Peer::State::kUnknown) {
      lose(*peer, {MC_AGENT_UNAVAILABLE, "the engine of that name is elsewhere now"});
    }
    peer->address = *address;
    peer->patient_until_ns = deadline_ns;
    introduce(*peer);
  }
  const std::uint64_t id = peer->id;
  const std::uint64_t losses = peer->losses;
  ++peer->users;
  const bool in_time = wait_until(lock, peer->changed, deadline_ns, [&] {
    return peer->state == Peer::State::kReady || peer->losses != losses ||
           peer->state == Peer::State::kUnknown;
  });
  --peer->users;
  if (peer->state == Peer::State::kReady) return id;
  const Status status = in_time ? peer->failure
                                : Status(MC_TIMEOUT, "the engine at " + text_of(peer->address) +
                                                         " did not tell its memory in time");
  return fail(status);
}

Status Engine::close_segment(mc_transfer_segment segment) {
  Lock lock = lock_in();
  Peer* const peer = find_peer(segment);
  if (peer == nullptr) return {MC_INVALID_ARGUMENT, "no such segment is open"};
  if (peer->users > 0) return {MC_BUSY, "another call waits for this segment"};
  const Status why(MC_CANCELLED, "its segment was closed");
  for (const auto& batch : batches_) {
    if (!batch || batch->ended()) continue;
    for (Request& request : batch->requests) {
      if (request.segment == segment) cancel(*batch, request, why);
    }
  }
  lose(*peer, why);
  // Chunks under way have what they need of it.
  peers_[slot_of(segment)].reset();
  return {};
}

Status Engine::probe(const std::string& name, std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  auto address = names_->find(name, deadline_ns);
  if (!address) return address.error();
  Lock lock = lock_in();
  std::uint32_t slot = 0;
  while (slot < peers_.size() && peers_[slot]) ++slot;
  if (slot >= MC_MAX_TRANSFER_SEGMENTS) return {MC_BUSY, "too many segments are open to probe one"};
  if (slot == peers_.size()) {
    peers_.emplace_back();
    peer_generations_.push_back(0);
  }
  peers_[slot] = std::make_unique<Peer>();
  Peer& peer = *peers_[slot];
  peer.id = (std::uint64_t{++peer_generations_[slot]} << 32) | (slot + 1);
  peer.name = name;
  peer.address = *address;
  peer.probe = true;
  peer.patient_until_ns = deadline_ns;
  introduce(peer);
  const bool in_time = wait_until(lock, peer.changed, deadline_ns, [&] {
    return peer.state == Peer::State::kReady || peer.state == Peer::State::kUnknown;
  });
  const Status status = !in_time ? Status(MC_TIMEOUT, "no engine answered the probe in time")
                        : peer.state == Peer::State::kReady ? Status()
                                                            : peer.failure;
  peers_[slot].reset();
  return status;
}

Result<Directory> Engine::list_regions(mc_transfer_segment segment, std::uint64_t timeout_ns) {
  Lock lock = lock_in();
  Peer* const peer = find_peer(segment);
  if (peer == nullptr) return fail(MC_INVALID_ARGUMENT, "no such segment is open");
  const std::uint64_t read = peer->tables_read;
  const std::uint64_t losses = peer->losses;
  ++peer->users;
  if (peer->state == Peer::State::kUnknown) {
    peer->patient_until_ns = now_ns() + timeout_ns;
    introduce(*peer);
  } else {
    look_at_table(*peer);
  }
  const bool in_time = wait_until(lock, peer->changed, now_ns() + timeout_ns, [&] {
    return peer->tables_read != read || peer->losses != losses;
  });
  --peer->users;
  if (!in_time) return fail(MC_TIMEOUT, "the peer's region table did not arrive in time");
  if (peer->tables_read == read) return fail(peer->failure);
  return peer->directory;
}

Result<bool> Engine::is_local(mc_transfer_segment segment) {
  Lock lock = lock_in();
  Peer* const peer = find_peer(segment);
  if (peer == nullptr) return fail(MC_INVALID_ARGUMENT, "no such segment is open");
  return peer->same_host != nullptr;
}

// ---- Introduction -----------------------------------------------------------------------------

void Engine::introduce(Peer& peer) {
  peer.state = Peer::State::kIntroducing;
  peer.introduced_ns = now_ns();
  const Status status = port_->introduce(peer.id, peer.address, peer.introduced_ns);
  if (!status.ok()) {
    lose(peer, status);
    return;
  }
  if (sleeping_ && !driven_) signal_eventfd(wake_.get());
}

void Engine::on_introduced(std::uint64_t call, const Result<EngineDescriptor>& engine_descriptor) {
  Peer* const peer = find_peer(call);
  if (peer == nullptr || peer->state != Peer::State::kIntroducing) return;
  if (!engine_descriptor && now_ns() < peer->patient_until_ns &&
      took_too_long(*peer, engine_descriptor.error())) {
    introduce(*peer);  // one of the two was very busy
    return;
  }
  if (!engine_descriptor) {
    lose(*peer,
         {engine_descriptor.error().code(), "the engine at " + text_of(peer->address) + ": " +
                                                std::string(engine_descriptor.error().text())});
    return;
  }
  peer->engine_descriptor = *engine_descriptor;
  if (peer->probe) {
    peer->state = Peer::State::kReady;
    peer->changed.notify_all();
    return;
  }
  if (options_.same_host)
    peer->same_host = SameHost::prove(peer->engine_descriptor, engine_descriptor_);
  peer->state = Peer::State::kReady;
  look_at_table(*peer);
}

// Lanes. False: it was lost by that.
bool Engine::connect(Peer& peer) {
  if (peer.transport_id != transport::kNoPeer) return true;
  auto connected = transport_->connect({peer.engine_descriptor.node, options_.lanes});
  if (!connected) {
    lose(peer, connected.error());
    return false;
  }
  peer.transport_id = *connected;
  return true;
}

void Engine::lose(Peer& peer, const Status& status) {
  if (peer.transport_id != transport::kNoPeer) transport_->close_peer(peer.transport_id);
  peer.transport_id = transport::kNoPeer;
  peer.same_host.reset();
  peer.state = Peer::State::kUnknown;
  peer.directory = {};
  peer.failure = status;
  peer.look_again = false;
  ++peer.losses;
  std::deque<Peer::Waiting> waiting;
  waiting.swap(peer.waiting);
  for (const Peer::Waiting& item : waiting) {
    Batch& batch = *batches_[item.slot];
    Request& request = batch.requests[item.index];
    if (request.state != Request::State::kWaiting) continue;
    --waiting_;
    end(batch, request, status);
    leave(batch);
  }
  peer.changed.notify_all();
}

// ---- The table --------------------------------------------------------------------------------

// REQUIRES: the peer is introduced.
void Engine::look_at_table(Peer& peer) {
  if (peer.state == Peer::State::kIntroducing) return;
  if (peer.state == Peer::State::kReading) {
    peer.look_again = true;  // what is under way may have begun before the change
    return;
  }
  peer.state = Peer::State::kReading;
  if (peer.same_host) {
    take_table(peer, peer.same_host->read_directory());
    return;
  }
  if (!connect(peer)) return;
  if (peer.table_bytes.empty()) peer.table_bytes.resize(kFirstTableBytes);
  const transport::Piece piece{peer.table_bytes.data(), peer.table_bytes.size()};
  auto region = transport_->import_region(peer.transport_id, peer.engine_descriptor.directory);
  if (!region) {
    lose(peer, region.error());
    return;
  }
  transport::Operation operation;
  operation.verb = transport::Verb::kRead;
  operation.peer = peer.transport_id;
  operation.cookie = kTableCookie | slot_of(peer.id);
  operation.deadline_ns = now_ns() + kTableNs;
  operation.region = *region;
  operation.pieces = {&piece, 1};
  if (transport_->submit({&operation, 1}, now_ns()) == 0) {
    lose(peer, {MC_BUSY, "as many transfers are in flight as may be; try again"});
  }
}

void Engine::on_table_bytes(Peer& peer, transport::Outcome outcome) {
  if (peer.state != Peer::State::kReading) return;
  if (outcome != transport::Outcome::kDone) {
    lose(peer, {transport::to_status(outcome).code(),
                "the region table of the engine at " + text_of(peer.address) +
                    " could not be read: " + std::string(transport::to_status(outcome).text())});
    return;
  }
  const auto size = directory_size(peer.table_bytes);
  if (size && *size > peer.table_bytes.size()) {
    peer.table_bytes.resize(*size);
    peer.state = Peer::State::kReady;
    look_at_table(peer);
    return;
  }
  take_table(peer, decode_directory(peer.table_bytes));
}

void Engine::take_table(Peer& peer, Result<Directory> directory) {
  peer.state = Peer::State::kReady;
  if (!directory && directory.error().code() == MC_BUSY && ++peer.torn_reads < kTornReads) {
    look_at_table(peer);
    return;
  }
  peer.torn_reads = 0;
  if (!directory) {
    lose(peer, directory.error());
    return;
  }
  if (peer.look_again) {
    peer.look_again = false;
    look_at_table(peer);
    return;
  }
  peer.directory = std::move(*directory);
  if (peer.same_host) peer.same_host->keep_only(peer.directory);
  ++peer.tables_read;
  release_waiting(peer);
  peer.changed.notify_all();
}

void Engine::release_waiting(Peer& peer) {
  std::deque<Peer::Waiting> waiting;
  waiting.swap(peer.waiting);
  for (const Peer::Waiting& item : waiting) {
    Batch& batch = *batches_[item.slot];
    if (batch.requests[item.index].state == Request::State::kWaiting) {
      --waiting_;
      start(batch, item.index);
    }
    leave(batch);
  }
}

void Engine::expire_waiting(std::uint64_t now) {
  const Status late(MC_TIMEOUT, "the peer was not found by the deadline");
  for (const auto& peer : peers_) {
    if (!peer) continue;
    for (const Peer::Waiting& item : peer->waiting) {
      Batch& batch = *batches_[item.slot];
      Request& request = batch.requests[item.index];
      if (request.state == Request::State::kWaiting && now >= batch.deadline_ns) {
        cancel(batch, request, late);
      }
    }
  }
}

}  // namespace mc::transfer
