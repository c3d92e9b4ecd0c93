// SPDX-License-Identifier: Apache-2.0
//
// The rdma part of one_sided::Requester: the messages of message.h, Lanes and Queues.
// Threads: the transport's. Owns lanes.
// Trusts: nothing that arrives; message.h checks all bodies.
#pragma once

#include "transport/one_sided/backend.h"
#include "transport/rdma/queues.h"

namespace mc::transport::rdma {

class Backend final : public one_sided::Backend {
 public:
  // requester is used only after the constructor has returned.
  Backend(const RdmaOptions& options, const DeviceSlots& devices, const LocalRegions& regions,
          Opener& opener, one_sided::Requester& requester)
      : options_(options),
        requester_(requester),
        lanes_(options, devices, opener, requester),
        queues_(options, regions, requester, lanes_) {}

  static one_sided::Traits traits(const RdmaOptions& options) {
    return {LinkProtocol::kRdma, kProtocol, kDescriptorFormat, options.idle_close_ns};
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
  const RdmaOptions& options_;
  one_sided::Requester& requester_;
  Lanes lanes_;
  Queues queues_;
};

}  // namespace mc::transport::rdma
