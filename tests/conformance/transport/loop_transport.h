// SPDX-License-Identifier: Apache-2.0
//
// Transport between nodes within a process, for tests and the simulator: no sockets, no
//   threads, no clock. The same calls give the same events. An operation ends when latency plus
//   size / bandwidth has passed on the clock that poll() is given.
// Threads: a single thread for all transports of a LoopNetwork.
// Owns: the queue. A network must outlive the transports.
// Trusts: the other node is a transport of the same network. Regions are checked nevertheless.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/flow/inbox.h"
#include "transport/flow/queue.h"
#include "transport/limits.h"
#include "transport/transport.h"

namespace mc::transport::testing {

class LoopTransport;

struct LoopPath {
  std::uint64_t latency_ns = 1'000;
  double bytes_per_ns = 10;
  std::uint32_t max_notification_bytes = kMaxNotificationBytes;
};

class LoopNetwork {
 public:
  explicit LoopNetwork(LoopPath path = {});
  std::unique_ptr<LoopTransport> make(NodeId node, std::uint64_t incarnation = 1);

 private:
  friend class LoopTransport;
  LoopTransport* find(NodeId node) {
    const auto at = nodes_.find(node);
    return at == nodes_.end() ? nullptr : at->second;
  }
  const LoopPath path_;
  const Capabilities capabilities_;
  std::map<NodeId, LoopTransport*> nodes_;
};

class LoopTransport : public Transport {
 public:
  ~LoopTransport() override;

  const Capabilities& capabilities() const override;
  Result<RegionId> register_region(const RegionSpec& spec) override;
  Result<std::vector<std::byte>> describe(RegionId region) const override;
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override;
  Result<PeerId> connect(const PeerSpec& spec) override;
  Status attach(Link link) override;
  void dial_failed(PeerId, std::uint32_t) override {}
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) override;
  void poll(std::uint64_t now_ns, std::vector<Event>& events) override;
  int wait_fd() const override { return -1; }
  std::uint64_t next_poll_ns() const override;
  bool close_region(RegionId region) override { return regions_.remove(region); }
  void close_peer(PeerId peer) override;
  void cancel(OperationId operation) override;
  const Counters& counters() const override { return counters_; }

 private:
  friend class LoopNetwork;
  struct Flight {
    Operation operation;
    std::vector<Piece> pieces;
    std::uint64_t size_bytes = 0;
    std::uint64_t due_ns = 0;
    Outcome outcome = Outcome::kDone;  // not kDone: the operation is already known to fail
  };
  struct Peer {
    NodeId node = 0;
    std::uint64_t free_at_ns = 0;  // the time at which the path has carried all operations
    bool lost = false;
  };
  LoopTransport(LoopNetwork& network, NodeId node, std::uint64_t incarnation);

  Outcome check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size) const;
  Outcome carry_out(Flight& flight);
  void copy(Flight& flight, std::byte* remote);
  void finish(Flight& flight, Outcome outcome);
  void watch_peers();

  LoopNetwork& network_;
  const NodeId node_;
  RegionTable regions_;
  Counters counters_;
  std::uint64_t next_peer_ = 1;
  std::uint64_t next_operation_ = 1;
  std::map<PeerId, Peer> peers_;
  std::map<OperationId, Flight> flights_;  // in the order of submission
  std::vector<Event> events_;
  Inbox arrived_;
};

}  // namespace mc::transport::testing
