// SPDX-License-Identifier: Apache-2.0
//
// The segments that this engine has open: finds each peer, learns the peer's region
//   table and keeps the peer's lanes.
// Threads: under the engine's lock.
// Owns: the peers.
// Trusts: no peer (port.h, wire/directory.h).
#pragma once

#include <memory>
#include <string>

#include "transport/engine/engine_peer.h"
#include "transport/engine/loop.h"
#include "transport/engine/port.h"
#include "transport/engine/slot_table.h"

namespace mc::transfer {

// Receives the requests that waited for a peer. Each call ends the reference.
class PeerWaiters {
 public:
  virtual ~PeerWaiters() = default;
  virtual void on_peer_ready(const RequestRef& waiting) = 0;
  virtual void on_peer_lost(const RequestRef& waiting, const Status& status) = 0;
};

class Peers final : public PortSink {
 public:
  struct Options {
    std::uint32_t lanes = 4;
    bool same_host = true;
  };
  // The cookie of a read of a region table, with the peer's slot. Requests have this bit clear.
  static constexpr std::uint64_t kTableCookie = 1ull << 63;

  Peers(const Options& options, Loop& loop, PeerWaiters& waiters)
      : options_(options), loop_(loop), waiters_(waiters), peers_(MC_MAX_TRANSFER_SEGMENTS) {}
  void start(transport::Transport& transport, Port& port, const EngineDescriptor& own);

  EnginePeer* find(mc_transfer_segment segment) const { return peers_.find(segment); }
  // Finds or adds the peer of that name, and introduces a peer that is unknown or has moved. The
  // caller waits on `changed`. Null: MC_MAX_TRANSFER_SEGMENTS are open.
  EnginePeer* open(const std::string& name, const Address& address, std::uint64_t deadline_ns);
  // Introduces the engine at that address without keeping a segment. Null: as open().
  EnginePeer* open_probe(const std::string& name, const Address& address,
                         std::uint64_t deadline_ns);
  void close(EnginePeer& peer, const Status& why);

  // Starts or restarts the introduction; repeats a slow introduction until patient_until_ns.
  void introduce(EnginePeer& peer, std::uint64_t patient_until_ns);
  // Reads the region table. REQUIRES: the peer is introduced.
  void read_table(EnginePeer& peer);
  // Connects lanes if there are none. False: the attempt lost the peer.
  bool connect(EnginePeer& peer);
  void lose(EnginePeer& peer, const Status& status);

  // Events of the transport.
  void on_table_read(const transport::Event& event);
  void on_lost(transport::PeerId lost);

  template <typename Visit>
  void for_each(Visit visit) const {
    peers_.for_each(visit);
  }

 private:
  const Address* address_of(transport::NodeId node) const override;
  void on_introduced(std::uint64_t call,
                     const Result<EngineDescriptor>& engine_descriptor) override;
  EnginePeer* add(const std::string& name, const Address& address);
  void introduce(EnginePeer& peer);
  void take_table(EnginePeer& peer, Result<Directory> directory);

  const Options options_;
  Loop& loop_;
  PeerWaiters& waiters_;
  transport::Transport* transport_ = nullptr;
  Port* port_ = nullptr;
  EngineDescriptor own_{};
  SlotTable<EnginePeer> peers_;
};

}  // namespace mc::transfer
