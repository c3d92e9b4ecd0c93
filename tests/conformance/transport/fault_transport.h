// SPDX-License-Identifier: Apache-2.0
//
// Any Transport, made unreliable: lost operations and links, delays, doubles, changed
//   orders, flipped bits, partitions. A seeded random source and the clock of poll() drive the
//   faults: the same seed and calls give the same faults.
//   The contract of Transport still holds: each operation ends once, by the deadline, and later no
//   byte lands in the pieces. Only flipped bits break the contract; checksums above must find them.
// Threads: as the inner transport.
// Owns: the inner transport, which must have no other user.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "transport/transport.h"

namespace mc::transport::testing {

// Probabilities from 0 to 1, for each operation independently.
struct FaultPlan {
  double lose = 0;        // not carried out: the operation ends at the deadline
  double duplicate = 0;   // a read or write is carried out twice
  double delay = 0;       // starts later
  double reorder = 0;     // the event comes after later events
  double flip_bit = 0;    // a single bit is wrong
  double break_link = 0;  // the peer cannot be reached for outage_ns
  std::uint64_t min_delay_ns = 1'000;
  std::uint64_t max_delay_ns = 1'000'000;
  std::uint64_t outage_ns = 2'000'000'000;
};

struct FaultCounts {
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t delayed = 0;
  std::uint64_t reordered = 0;
  std::uint64_t flipped = 0;
  std::uint64_t broken_links = 0;
  std::uint64_t cut_off = 0;  // operations to a node out of reach
};

class FaultTransport : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, std::uint64_t seed)
      : inner_(std::move(inner)), random_(seed) {}

  void set_plan(const FaultPlan& plan) { plan_ = plan; }
  // No byte reaches or leaves the node until join(). To cut a path, call part() at both
  // ends.
  void part(NodeId node);
  void join(NodeId node);
  const FaultCounts& fault_counts() const { return counts_; }
  Transport& inner() { return *inner_; }

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  Result<RegionId> register_region(const RegionSpec& spec) override {
    return inner_->register_region(spec);
  }
  Result<std::vector<std::byte>> describe(RegionId region) const override {
    return inner_->describe(region);
  }
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override {
    return inner_->import_region(peer, text);
  }
  Result<PeerId> connect(const PeerSpec& spec) override;
  Status attach(Link link) override { return inner_->attach(std::move(link)); }
  void dial_failed(PeerId peer, std::uint32_t lane) override { inner_->dial_failed(peer, lane); }
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) override;
  void poll(std::uint64_t now_ns, std::vector<Event>& events) override;
  int wait_fd() const override { return inner_->wait_fd(); }
  std::uint64_t next_poll_ns() const override;
  bool close_region(RegionId region) override { return inner_->close_region(region); }
  void close_peer(PeerId peer) override;
  void cancel(OperationId operation) override;
  const Counters& counters() const override { return inner_->counters(); }
  void report_rails(std::vector<RailReport>& reports) const override {
    inner_->report_rails(reports);
  }
  void count_rails(std::vector<RailCounts>& counts) const override { inner_->count_rails(counts); }

 private:
  struct Flight {
    Operation operation;
    std::vector<Piece> pieces;
    std::vector<std::byte> flipped;      // bytes that a write sends instead
    std::vector<OperationId> inner_ids;  // given to the inner transport, not ended yet
    std::uint32_t copies = 1;            // not yet given to the inner transport
    std::uint64_t start_ns = 0;
    bool never_starts = false;
    bool flips = false;
    bool event_is_late = false;
    Outcome outcome = Outcome::kDone;
    std::uint64_t bytes = 0;
    // The end without the inner transport, and the outcome.
    std::uint64_t end_ns = 0;
    Outcome end_outcome = Outcome::kTimedOut;
  };
  struct LateEvent {
    std::uint64_t due_ns;
    Event event;
  };

  double chance() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  std::uint64_t next();  // SplitMix64
  std::uint64_t some_delay_ns();
  bool is_parted(NodeId node, std::uint64_t now_ns) const;
  void plan(Flight& flight, std::uint64_t now_ns);
  void cut_off(Flight& flight, std::uint64_t now_ns);
  void flip_a_bit(std::span<const Piece> pieces);
  void start_due(std::uint64_t now_ns);
  bool start(Flight& flight, std::uint64_t now_ns);
  void on_inner(const Event& event, std::uint64_t now_ns, std::vector<Event>& events);
  void end(Flight& flight, Outcome outcome, std::uint64_t now_ns);

  std::unique_ptr<Transport> inner_;
  std::uint64_t random_;
  FaultPlan plan_;
  FaultCounts counts_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_id_ = 1;
  std::map<OperationId, Flight> flights_;
  std::map<PeerId, NodeId> nodes_;
  std::set<NodeId> parted_;
  std::map<NodeId, std::uint64_t> out_until_ns_;
  std::vector<LateEvent> late_;
  std::vector<Event> inner_events_;
};

}  // namespace mc::transport::testing
