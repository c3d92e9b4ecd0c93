// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/peers.h"

#include "libmc/base/clock.h"

namespace mc::transfer {

namespace {

constexpr int kTornReads = 100;  // of a table, in a row
constexpr std::uint64_t kTableNs = 2'000'000'000;
constexpr std::size_t kFirstTableBytes = kDirectoryHeadBytes + 64 * kDirectoryEntryBytes;

// By this engine's clock, or by the clock of the peer, which then hangs up.
bool took_too_long(const EnginePeer& peer, const Status& why) {
  return why.code() == MC_TIMEOUT ||
         (why.code() == MC_AGENT_UNAVAILABLE &&
          now_ns() - peer.introduced_ns >= transport::kHandshakeTimeoutNs / 2);
}

}  // namespace

void Peers::start(transport::Transport& transport, Port& port, const EngineDescriptor& own) {
  transport_ = &transport;
  port_ = &port;
  own_ = own;
}

const Address* Peers::address_of(transport::NodeId node) const {
  const Address* found = nullptr;
  peers_.for_each([&](const EnginePeer& peer) {
    const bool connected = peer.transport_id != transport::kNoPeer;
    if (connected && peer.engine_descriptor.node == node) found = &peer.address;
  });
  return found;
}

// ---- Segments ---------------------------------------------------------------------------------

EnginePeer* Peers::add(const std::string& name, const Address& address) {
  auto peer = std::make_unique<EnginePeer>();
  peer->name = name;
  peer->address = address;
  return peers_.add(std::move(peer));
}

EnginePeer* Peers::open(const std::string& name, const Address& address,
                        std::uint64_t deadline_ns) {
  EnginePeer* peer = nullptr;
  peers_.for_each([&](EnginePeer& known) {
    if (known.name == name && !known.probe) peer = &known;
  });
  if (peer == nullptr) peer = add(name, address);
  if (peer == nullptr) return nullptr;
  const bool unknown = peer->state == EnginePeer::State::kUnknown;
  const bool moved = !unknown && peer->address != address;
  if (moved) {
    lose(*peer, {MC_AGENT_UNAVAILABLE, "the engine of that name has moved to another address"});
  }
  if (unknown || moved) {
    peer->address = address;
    introduce(*peer, deadline_ns);
  }
  return peer;
}

EnginePeer* Peers::open_probe(const std::string& name, const Address& address,
                              std::uint64_t deadline_ns) {
  EnginePeer* const peer = add(name, address);
  if (peer == nullptr) return nullptr;
  peer->probe = true;
  introduce(*peer, deadline_ns);
  return peer;
}

// Chunks that are being copied keep the objects that the copy needs.
void Peers::close(EnginePeer& peer, const Status& why) {
  lose(peer, why);
  peers_.remove(peer);
}

void Peers::lose(EnginePeer& peer, const Status& status) {
  if (peer.transport_id != transport::kNoPeer) transport_->close_peer(peer.transport_id);
  peer.transport_id = transport::kNoPeer;
  peer.same_host.reset();
  peer.state = EnginePeer::State::kUnknown;
  peer.directory = {};
  peer.failure = status;
  peer.look_again = false;
  ++peer.losses;
  std::deque<RequestRef> waiting;
  waiting.swap(peer.waiting);
  for (const RequestRef& request : waiting) waiters_.on_peer_lost(request, status);
  peer.changed.notify_all();
}

void Peers::on_lost(transport::PeerId lost) {
  peers_.for_each([&](EnginePeer& peer) {
    if (peer.transport_id != lost) return;
    lose(peer, {MC_AGENT_UNAVAILABLE, "the engine at " + text_of(peer.address) +
                                          " no longer answers; is its process alive?"});
  });
}

// ---- Introduction -----------------------------------------------------------------------------

void Peers::introduce(EnginePeer& peer, std::uint64_t patient_until_ns) {
  peer.patient_until_ns = patient_until_ns;
  introduce(peer);
}

void Peers::introduce(EnginePeer& peer) {
  peer.state = EnginePeer::State::kIntroducing;
  peer.introduced_ns = now_ns();
  const Status status = port_->introduce(peer.id, peer.address, peer.introduced_ns);
  if (!status.ok()) {
    lose(peer, status);
    return;
  }
  loop_.wake();
}

void Peers::on_introduced(std::uint64_t call, const Result<EngineDescriptor>& engine_descriptor) {
  EnginePeer* const peer = find(call);
  if (peer == nullptr || peer->state != EnginePeer::State::kIntroducing) return;
  if (!engine_descriptor) {
    const Status& why = engine_descriptor.error();
    if (now_ns() < peer->patient_until_ns && took_too_long(*peer, why)) {
      introduce(*peer);  // one of the two processes was very busy
      return;
    }
    lose(*peer,
         {why.code(), "the engine at " + text_of(peer->address) + ": " + std::string(why.text())});
    return;
  }
  peer->engine_descriptor = *engine_descriptor;
  peer->state = EnginePeer::State::kReady;
  if (peer->probe) {
    peer->changed.notify_all();
    return;
  }
  if (options_.same_host) peer->same_host = SameHost::prove(peer->engine_descriptor, own_);
  read_table(*peer);
}

bool Peers::connect(EnginePeer& peer) {
  if (peer.transport_id != transport::kNoPeer) return true;
  auto connected = transport_->connect({peer.engine_descriptor.node, options_.lanes});
  if (!connected) {
    lose(peer, connected.error());
    return false;
  }
  peer.transport_id = *connected;
  return true;
}

// ---- The region table -------------------------------------------------------------------------

void Peers::read_table(EnginePeer& peer) {
  if (peer.state == EnginePeer::State::kIntroducing) return;
  if (peer.state == EnginePeer::State::kReading) {
    peer.look_again = true;  // the read in progress may have begun before the change
    return;
  }
  peer.state = EnginePeer::State::kReading;
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
    lose(peer, {MC_BUSY, "too many transfers are in flight; try again"});
  }
}

void Peers::on_table_read(const transport::Event& event) {
  EnginePeer* const peer = peers_.at(static_cast<std::uint32_t>(event.cookie));
  // A peer that was closed or lost meanwhile has another transport id, or none.
  if (peer == nullptr || peer->transport_id != event.peer) return;
  if (peer->state != EnginePeer::State::kReading) return;
  if (event.outcome != transport::Outcome::kDone) {
    const Status why = transport::to_status(event.outcome);
    lose(*peer, {why.code(), "cannot read the region table of the engine at " +
                                 text_of(peer->address) + ": " + std::string(why.text())});
    return;
  }
  const auto size = directory_size(peer->table_bytes);
  if (size && *size > peer->table_bytes.size()) {
    peer->table_bytes.resize(*size);
    peer->state = EnginePeer::State::kReady;
    read_table(*peer);
    return;
  }
  take_table(*peer, decode_directory(peer->table_bytes));
}

void Peers::take_table(EnginePeer& peer, Result<Directory> directory) {
  peer.state = EnginePeer::State::kReady;
  if (!directory && directory.error().code() == MC_BUSY && ++peer.torn_reads < kTornReads) {
    read_table(peer);
    return;
  }
  peer.torn_reads = 0;
  if (!directory) {
    lose(peer, directory.error());
    return;
  }
  if (peer.look_again) {
    peer.look_again = false;
    read_table(peer);
    return;
  }
  peer.directory = std::move(*directory);
  if (peer.same_host) peer.same_host->keep_only(peer.directory);
  ++peer.tables_read;
  std::deque<RequestRef> waiting;
  waiting.swap(peer.waiting);
  for (const RequestRef& request : waiting) waiters_.on_peer_ready(request);
  peer.changed.notify_all();
}

}  // namespace mc::transfer
