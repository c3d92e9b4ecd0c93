// SPDX-License-Identifier: Apache-2.0
//
// Transport over libfabric: one-sided reads and writes by reliable datagram endpoints,
//   for networks that verbs do not drive (AWS EFA), and for every other provider of libfabric. A
//   TCP link to each peer carries the agreement about endpoints and keys, and is the peer's sign of
//   life.
//   The serving side takes no part in reads: RegionGuard is not asked, and a stale generation is
//   not refused. The reader compares a checksum.
// Threads: a single thread drives the transport. Other threads register memory. Providers may have
//   threads.
// Owns: domains, registrations, endpoints, links.
// Trusts: links that were attached, but nothing that arrives there; the provider and the
//   network. Keys travel in clear text, so hosts that share the network can forge keys.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/backend.h"
#include "transport/fabric/responder.h"
#include "transport/flow/workers.h"
#include "transport/one_sided/one_sided.h"

namespace mc::transport::fabric {

class FabricTransport : public OneSidedTransport {
 public:
  // dialer must outlive the transport. Errors: MC_UNSUPPORTED: this host has no usable provider,
  // with the cause; MC_INVALID_ARGUMENT, MC_NO_MEMORY.
  static Result<std::unique_ptr<FabricTransport>> create(const FabricOptions& options,
                                                         const Library& library, Dialer& dialer);
  ~FabricTransport() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  // Blocks while the memory is pinned.
  Result<RegionId> register_region(const RegionSpec& spec) override { return regions_.add(spec); }
  Result<std::vector<std::byte>> describe(RegionId region) const override {
    return regions_.describe(region);
  }
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text) override {
    return requester_.import_region(peer, text);
  }
  void set_backed(RegionId region, std::span<const MemoryRange> ranges) override;
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
  // No peer reads or writes the region after the call. With a provider in software, peers must then
  // open their lanes to the other regions anew.
  bool close_region(RegionId region) override;
  void close_peer(PeerId peer) override { requester_.close_peer(peer); }
  void cancel(OperationId operation) override { requester_.cancel(operation); }
  const Counters& counters() const override { return counters_; }
  void report_rails(std::vector<RailReport>& reports) const override {
    backend_.lanes().report(reports);
  }
  void count_rails(std::vector<RailCounts>& counts) const override {
    counts.push_back(backend_.lanes().count_rails());
  }

  LinkProtocol protocol() const override { return LinkProtocol::kFabric; }
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
  // The provider and the domains.
  std::string describe_devices() const override;
  // The domains that are not open now, each with the cause.
  std::string obstacles() const override;

  // For operators: the rails of a peer.
  std::string describe_rails(PeerId peer) const;

 private:
  // Wakes the loop when a serving endpoint has work, which poll() does.
  class ServingEvents : public Watched {
   public:
    void on_edge(std::uint64_t) override {}
  };

  // A domain that the provider showed, open or not.
  struct Slot {
    Info info;
    std::string why;  // the domain is not open
    bool opening = false;
    std::uint64_t opened_ns = 0;  // the last time
    std::uint64_t pause_ns = 0;   // before the last try
    std::uint64_t try_ns = 0;     // time of the next try
  };

  FabricTransport(const FabricOptions& options, const Library& library, Dialer& dialer,
                  std::vector<Info> found, Fd epoll, Fd wakeup);

  std::uint64_t new_epoch();
  Info info_of(std::size_t slot) const;
  // Opens every domain that can be opened. Errors: no domain can be opened.
  Status open_domains();
  // Opens closed domains whose time has come, beside the loop.
  void open_again();
  void on_opened(std::size_t slot, Result<std::unique_ptr<Domain>> opened);
  Status use(std::size_t slot, std::unique_ptr<Domain> opened);
  void close_domain(std::size_t slot, const std::string& why);
  // Closes the domains that lanes have found to be broken.
  void close_broken();
  void try_later(std::size_t slot, const std::string& why);
  Status watch(Domain& domain);
  // Moves a domain to a new serving endpoint.
  void move(std::size_t slot);
  void move_as_asked();
  // Ends requests of peers that providers have begun, and would continue after deregistration.
  void end_lingering_requests();
  void serve();
  void fall_asleep();
  void hand_out(std::vector<Event>& events);

  const FabricOptions options_;
  const Library library_;
  Capabilities capabilities_;
  Counters counters_;
  Edges edges_;
  ServingEvents serving_events_;
  std::vector<Slot> slots_;
  DomainSlots domains_;
  DomainRegistrar registrar_;
  LocalRegions regions_;
  Workers workers_;
  Backend backend_;
  one_sided::Requester requester_;
  Responder responder_;
  std::uint64_t epochs_count_ = 0;
  std::uint64_t now_ns_ = 0;   // of the last call
  std::uint64_t busy_ns_ = 0;  // of the last completion
  std::uint64_t next_edges_ns_ = 0;
  std::uint64_t next_open_ns_ = ~std::uint64_t{0};
  std::uint64_t next_serve_ns_ = 0;
  bool has_fds_ = true;  // descriptors tell of all requests of peers
  // The time at which a provider must be called: for requests of peers, for any cause.
  std::uint64_t serving_wake_ns_ = 0;
  std::uint64_t wake_ns_ = 0;
};

}  // namespace mc::transport::fabric
