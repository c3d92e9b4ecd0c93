// SPDX-License-Identifier: Apache-2.0
//
// Transport over RDMA: one-sided reads and writes by reliably connected queue pairs on
//   InfiniBand and RoCE v2, sliced over pairs of devices. A TCP link to each peer carries the
//   agreement about queue pairs and keys, and is the peer's sign of life.
//   The serving side's processor takes no part in reads: RegionGuard is not asked, and a stale
//   generation is not refused. The reader compares a checksum.
// Threads: a single thread drives the transport. Other threads register large memory, and resolve
//   the addresses of new queue pairs.
// Owns: devices, registrations, queue pairs, links.
// Trusts: links that were attached, but nothing that arrives there; and the network. RDMA's keys
//   travel in clear text, so hosts that share the network can forge keys.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/flow/inbox.h"
#include "transport/one_sided/one_sided.h"
#include "transport/rdma/backend.h"
#include "transport/rdma/responder.h"

namespace mc::transport::rdma {

class RdmaTransport : public OneSidedTransport {
 public:
  // dialer must outlive the transport. Errors: MC_UNSUPPORTED: this host has no usable RDMA device,
  // with the cause; MC_INVALID_ARGUMENT, MC_NO_MEMORY.
  static Result<std::unique_ptr<RdmaTransport>> create(const RdmaOptions& options,
                                                       const Verbs& verbs, Dialer& dialer);
  ~RdmaTransport() override;

  const Capabilities& capabilities() const override;
  // Blocks while the memory is pinned: about a second for 100 GB.
  Result<RegionId> register_region(const RegionSpec& spec) override { return regions_.add(spec); }
  Result<std::vector<std::byte>> describe(RegionId region) const override {
    return regions_.describe(region);
  }
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override {
    return requester_.import_region(peer, text);
  }
  void set_backed(RegionId region, std::span<const MemoryRange> ranges) override {
    static_cast<void>(regions_.back(region, ranges));
  }
  Result<PeerId> connect(const PeerSpec& spec) override { return requester_.connect(spec); }
  Status attach(Link link) override;
  void dial_failed(PeerId peer, std::uint32_t) override { requester_.dial_failed(peer, now_ns_); }
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns) override;
  void poll(std::uint64_t now_ns, std::vector<Event>& events) override;
  int wait_fd() const override { return edges_.fd(); }
  Status also_wait_for(int fd) override {
    return edges_.watch(fd, nullptr, Edges::Kind::kReadable);
  }
  std::uint64_t next_poll_ns() const override;
  // True: the devices refuse every access to the region.
  bool close_region(RegionId region) override { return regions_.close(region); }
  void close_peer(PeerId peer) override { requester_.close_peer(peer); }
  void cancel(OperationId operation) override { requester_.cancel(operation); }
  const Counters& counters() const override { return counters_; }

  LinkProtocol protocol() const override { return LinkProtocol::kRdma; }
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name) override {
    return requester_.import_named(peer, name);
  }
  bool is_reachable(RemoteRegionId region, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                    std::uint64_t now_ns) override {
    return requester_.is_reachable(region, offset_bytes, size_bytes, now_ns);
  }
  bool holds(std::span<const Piece> pieces) const override { return regions_.holds(pieces); }
  bool is_guarded(RemoteRegionId region) const override { return requester_.is_guarded(region); }
  void doubt(RemoteRegionId region) override { requester_.doubt(region); }
  bool is_up(PeerId peer) const override { return requester_.has_way(peer); }
  Status backing(RegionId region) const override { return regions_.backing(region); }
  std::string describe_devices() const override;
  // The devices that could not be opened, each with the cause.
  std::string obstacles() const override;
  void report_rails(std::vector<RailReport>& reports) const override {
    backend_.lanes().report(reports);
  }
  void count_rails(std::vector<RailCounts>& counts) const override {
    counts.push_back(backend_.lanes().count_rails());
  }

  // For operators: the rails of a peer.
  std::string describe_rails(PeerId peer) const;

 private:
  // A device's two event channels.
  class DeviceEvents : public Watched {
   public:
    DeviceEvents(RdmaTransport& owner, std::size_t slot) : owner_(owner), slot_(slot) {}
    void on_edge(std::uint64_t now_ns) override { owner_.on_device_event(slot_, now_ns); }

   private:
    RdmaTransport& owner_;
    const std::size_t slot_;
  };
  struct Slot {
    std::string name;
    std::string why;  // the device is not open
    std::uint32_t opened_count = 0;
    std::unique_ptr<DeviceEvents> events;
  };

  RdmaTransport(const RdmaOptions& options, const Verbs& verbs, Dialer& dialer, Fd epoll,
                Fd wakeup);

  // Opens the devices that are there now; closes the devices that are gone.
  void find_devices();
  Status open_device(std::size_t slot, ibv_device* device);
  void close_device(std::size_t slot, std::uint64_t now_ns);
  void on_device_event(std::size_t slot, std::uint64_t now_ns);
  // True: there was a completion.
  bool take_completions(std::size_t slot);
  void drain(const Device& device);
  void take_received(std::size_t slot, const ibv_wc& completion);
  void arm();
  void hand_out(std::vector<Event>& events);

  const RdmaOptions options_;
  const Verbs verbs_;
  Counters counters_;
  Edges edges_;
  std::vector<Slot> slots_;
  DeviceSlots devices_;
  DeviceRegistrar registrar_;
  LocalRegions regions_;
  Opener opener_;
  Backend backend_;
  one_sided::Requester requester_;
  Responder responder_;
  Inbox arrived_;
  std::uint64_t now_ns_ = 0;   // of the last call
  std::uint64_t busy_ns_ = 0;  // of the last completion
  std::uint64_t next_edges_ns_ = 0;
  std::uint64_t next_scan_ns_ = 0;
};

}  // namespace mc::transport::rdma
