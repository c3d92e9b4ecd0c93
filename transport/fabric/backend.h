// SPDX-License-Identifier: Apache-2.0
//
// The fabric part of one_sided::Requester: the messages of message.h, Lanes and Queues.
// Threads: the transport's. Owns lanes.
// Trusts: nothing that arrives; message.h checks all bodies.
#pragma once

#include "transport/fabric/queues.h"
#include "transport/one_sided/backend.h"

namespace mc::transport::fabric {

class Backend final : public one_sided::Backend {
 public:
  // requester is used only after the constructor has returned.
  Backend(const FabricOptions& options, const DomainSlots& domains, const LocalRegions& regions,
          one_sided::Requester& requester)
      : requester_(requester),
        lanes_(options, domains, requester),
        queues_(regions, requester, lanes_) {}

  static one_sided::Traits traits(const FabricOptions& options) {
    return {LinkProtocol::kFabric, kProtocol, kDescriptorFormat, options.idle_close_ns};
  }
  Lanes& lanes() { return lanes_; }
  const Lanes& lanes() const { return lanes_; }

  std::unique_ptr<one_sided::OneSidedPeer> make_peer(PeerId id, const PeerSpec& spec) override;
  std::vector<std::byte> hello(one_sided::OneSidedPeer& peer) override;
  std::vector<std::byte> describe(RegionId region) const override;
  std::vector<std::byte> ping() const override;
  bool take(one_sided::OneSidedPeer& peer, const ControlHeader& header,
            std::span<const std::byte> body, std::uint64_t now_ns) override;
  Outcome queue(one_sided::OneSidedPeer& peer, OperationState& operation,
                std::uint64_t now_ns) override;
  void pump(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) override;
  void on_notice_ended(one_sided::OneSidedPeer& peer, OperationId operation) override;
  void look_after_lanes(one_sided::OneSidedPeer& peer, std::uint64_t now_ns,
                        std::uint64_t away_ns) override;
  void close_lanes(one_sided::OneSidedPeer& peer, const std::string& why,
                   std::uint64_t now_ns) override;
  void abandon_lanes_of(one_sided::OneSidedPeer& peer, OperationId operation,
                        std::uint64_t now_ns) override;
  void fall_asleep(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) override;
  void on_link_failed(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) override;
  void on_lost(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) override;

 private:
  void on_notified(FabricPeer& peer, const NotifiedBody& notified);

  one_sided::Requester& requester_;
  Lanes lanes_;
  Queues queues_;
};

}  // namespace mc::transport::fabric
