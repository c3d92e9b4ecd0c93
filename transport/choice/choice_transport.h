// SPDX-License-Identifier: Apache-2.0
//
// Two transports to each peer, and the choice between them for each operation. TCP
//   reaches every peer, tells whether the peer is alive, and carries all small operations. The direct
//   (one-sided) transport, rdma or fabric, carries large reads, if both sides have the transport
//   and the lanes work. While lanes are opened, or have failed, TCP carries the reads.
//
//     read ──► small, or the direct way is not ready ──────────────────────────► TCP
//        └───► the bytes directly     ┐ both ─► done
//              a probe byte by TCP    ┘  failed ─► all bytes by TCP, by the same deadline
//
//   A device that serves a read does not check that the bytes are still the meant object: the bytes
//   of an object that was removed a moment ago lie there unchanged, with a checksum that fits. The
//   probe byte asks the region's guard while the operation is under way.
//   Memory without a guard needs no probe byte. The direct transport also carries writes to such memory, and
//   reads of any size that the caller wants.
// Threads: a single thread drives the transport.
// Owns: both transports.
// Trusts: the caller. Each transport checks the bytes that peers send.
#pragma once

#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "transport/one_sided/one_sided.h"

namespace mc::transport::choice {

// From this size on, a direct read is worth the probe byte.
inline constexpr std::uint64_t kProbedBytes = 64 * 1024;

struct ChoiceCounters {
  std::uint64_t begun = 0;    // operations begun with the direct transport
  std::uint64_t detours = 0;  // of these operations, repeated by TCP
};

class ChoiceTransport : public Transport {
 public:
  // direct_bytes: smaller operations go by TCP. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<ChoiceTransport>> create(std::unique_ptr<Transport> tcp,
                                                         std::unique_ptr<OneSidedTransport> direct,
                                                         std::uint64_t direct_bytes = kProbedBytes);

  const Capabilities& capabilities() const override { return tcp_->capabilities(); }
  Result<RegionId> register_region(const RegionSpec& spec) override;
  Result<std::vector<std::byte>> describe(RegionId region) const override {
    return tcp_->describe(region);
  }
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override;
  void set_backed(RegionId region, std::span<const MemoryRange> ranges) override;
  Result<PeerId> connect(const PeerSpec& spec) override;
  // Takes links of TCP; passes other links on to the direct transport.
  Status attach(Link link) override;
  void dial_failed(PeerId peer, std::uint32_t lane) override { tcp_->dial_failed(peer, lane); }
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) override;
  void poll(std::uint64_t now_ns, std::vector<Event>& events) override;
  int wait_fd() const override { return direct_->wait_fd(); }
  std::uint64_t next_poll_ns() const override;
  bool close_region(RegionId region) override;
  Status backing(RegionId region) const override;
  void close_peer(PeerId peer) override;
  void cancel(OperationId operation) override;
  const Counters& counters() const override;
  void report_rails(std::vector<RailReport>& reports) const override;
  void count_rails(std::vector<RailCounts>& counts) const override {
    tcp_->count_rails(counts);
    direct_->count_rails(counts);
  }

  const ChoiceCounters& choices() const { return choices_; }
  // For operators: why the direct transport carries less than possible; empty: no obstacle.
  std::string obstacles() const;

 private:
  struct Ways {
    NodeId node = 0;
    PeerId direct = kNoPeer;
  };
  struct Remote {
    PeerId peer = kNoPeer;
    std::uint64_t name = 0;
    RemoteRegionId direct = 0;  // 0: not imported yet
  };
  struct Local {
    RegionId direct = kNoRegion;
    Status why;  // the direct way is missing
  };
  // A region whose keys and lanes were missing for an operation.
  struct Opening {
    MemoryRange range;
    std::uint64_t until_ns = 0;
  };
  // An operation that was begun with the direct transport.
  struct Begun {
    Operation operation;
    std::vector<Piece> pieces;
    PeerId direct_peer = kNoPeer;
    OperationId by_direct = kNoOperation;  // kNoOperation: ended
    OperationId by_tcp = kNoOperation;     // the byte, or later all bytes; kNoOperation: ended
    Outcome direct_outcome = Outcome::kDone;
    Outcome tcp_outcome = Outcome::kDone;
    std::uint64_t bytes = 0;
    bool detour = false;
    bool cancelled = false;
    std::byte byte{};
  };

  ChoiceTransport(std::unique_ptr<Transport> tcp, std::unique_ptr<OneSidedTransport> direct,
                  std::uint64_t direct_bytes)
      : tcp_(std::move(tcp)),
        direct_(std::move(direct)),
        direct_bytes_(direct_bytes),
        feature_(feature_of(direct_->protocol())) {}
  void connect_direct(NodeId node);
  void close_direct(NodeId node);
  bool is_reachable(Remote& remote, const MemoryRange& range, std::uint64_t now_ns);
  void open_ways();
  // The region for a direct operation; null: TCP must carry the operation.
  const Remote* direct_way(const Operation& operation, std::uint64_t now_ns);
  bool begin(Operation& operation, const Remote& remote, std::uint64_t now_ns);
  void take_tcp(std::vector<Event>& events, std::size_t first);
  void take_direct();
  bool probe(OperationId id, Begun& begun, std::uint64_t now_ns);
  void settle(OperationId id, Begun& begun);
  void detour(OperationId id, Begun& begun);
  void leave_dead_ways();
  void end(OperationId id, const Begun& begun, Outcome outcome);

  const std::unique_ptr<Transport> tcp_;
  const std::unique_ptr<OneSidedTransport> direct_;
  const std::uint64_t direct_bytes_;
  const std::uint32_t feature_;  // of nodes that accept links of the direct transport
  std::set<NodeId> able_;        // nodes with the feature
  std::unordered_map<PeerId, Ways> peers_;
  std::unordered_map<PeerId, PeerId> of_direct_;  // direct_'s peers to own peers
  std::unordered_map<RegionId, Local> regions_;
  std::unordered_map<RemoteRegionId, Remote> remote_;
  std::unordered_map<RemoteRegionId, Opening> opening_;
  std::unordered_map<OperationId, Begun> begun_;
  std::unordered_map<OperationId, OperationId> by_tcp_;  // TCP's operations to own operations
  std::vector<OperationId> waiting_;                     // for room in TCP
  std::vector<Event> events_;                            // to be handed out
  std::vector<Event> direct_events_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t next_opening_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  ChoiceCounters choices_;
  mutable Counters counters_;
};

}  // namespace mc::transport::choice
