// SPDX-License-Identifier: Apache-2.0
//
// Transport over TCP: several lanes to each peer, and a loop with epoll. The
//   transport works on every host. Reads and writes are two-sided: the serving side's transport
//   answers from registered regions.
// Threads: a single thread drives the transport.
// Owns: the lanes and the epoll descriptor.
// Trusts: links that were attached, and nothing that arrives there.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>

#include "transport/flow/inbox.h"
#include "transport/tcp/requester.h"
#include "transport/tcp/serving_lane.h"
#include "transport/transport.h"

namespace mc::transport::tcp {

struct TcpOptions {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  // Payload of at least this size is sent without the kernel's copy, if the kernel can. 0: never.
  std::uint32_t zero_copy_min_bytes = 128 * 1024;
  // Congestion control of lanes: reno, cubic, dctcp …; empty: the system's. With bbr, a lane that
  // had little to send for a while sends the next batch slowly.
  std::string congestion_control;
  // Limit of bytes of large operations that are asked of all peers together and not here yet.
  std::uint64_t max_asked_bytes = kMaxAskedBytes;
};

class TcpTransport : public Transport, private LaneLoop, private ServingSink {
 public:
  // dialer must outlive the transport. Errors: MC_NO_MEMORY.
  static Result<std::unique_ptr<TcpTransport>> create(const TcpOptions& options, Dialer& dialer);
  ~TcpTransport() override;

  const Capabilities& capabilities() const override;
  Result<RegionId> register_region(const RegionSpec& spec) override;
  Result<std::vector<std::byte>> describe(RegionId region) const override;
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override;
  Result<PeerId> connect(const PeerSpec& spec) override;
  Status attach(Link link) override;
  void dial_failed(PeerId peer, std::uint32_t lane) override;
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) override;
  void poll(std::uint64_t now_ns, std::vector<Event>& events) override;
  int wait_fd() const override { return epoll_.get(); }
  std::uint64_t next_poll_ns() const override;
  bool close_region(RegionId region) override { return regions_.remove(region); }
  void close_peer(PeerId peer) override { requester_.close_peer(peer); }
  void cancel(OperationId operation) override { requester_.cancel(operation); }
  const Counters& counters() const override { return counters_; }
  void report_rails(std::vector<RailReport>& reports) const override {
    requester_.report_rails(reports);
  }
  void count_rails(std::vector<RailCounts>& counts) const override {
    counts.push_back(requester_.count_rails());
  }

 private:
  // The lanes that a peer had cut, up to these serials. The record stays, since bytes of a cut lane
  // may be read, or the link handed over, only now.
  struct CutLanes {
    std::uint64_t incarnation = 0;
    std::array<std::uint32_t, kMaxLanes> serials{};
  };

  TcpTransport(const TcpOptions& options, Dialer& dialer, Fd epoll);

  Status watch(Lane* lane) override;
  void wake(Lane* lane) override;
  void forget(Lane* lane) override;
  RegionTable& regions() override { return regions_; }
  std::byte* scratch() override { return scratch_.get(); }
  bool on_notification(NodeId from, std::span<const std::byte> payload) override;
  void on_serving_failed(ServingLane& lane) override;
  Outcome on_cut(const ServingLane& asker, std::uint32_t lane, std::uint32_t serial) override;
  bool is_cut(const ServingLane& lane) const override;
  Counters& serving_counters() override { return counters_; }

  void take_edges();
  void work_lanes(std::uint64_t now_ns);
  void cut_slow_lanes(std::uint64_t now_ns);
  void hand_out(std::vector<Event>& events);

  const TcpOptions options_;
  Fd epoll_;
  Counters counters_;
  RegionTable regions_;
  // Lanes with work; null: forgotten meanwhile. A lane's destructor removes the lane from these
  // lists, so the lists are declared first.
  std::vector<Lane*> ready_;
  std::vector<Lane*> working_;
  Requester requester_;
  std::unordered_map<ServingLane*, std::unique_ptr<ServingLane>> serving_;
  std::unordered_map<NodeId, CutLanes> cut_lanes_;
  const std::unique_ptr<std::byte[]> scratch_ = std::make_unique<std::byte[]>(kScratchBytes);
  Inbox arrived_;
  std::uint64_t now_ns_ = 0;  // of the last call
  std::uint64_t next_slow_look_ns_ = 0;
};

}  // namespace mc::transport::tcp
