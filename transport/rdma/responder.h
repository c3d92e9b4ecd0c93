// SPDX-License-Identifier: Apache-2.0
//
// The serving side: the links that peers dialed, and the serving ends of their queue
//   pairs. The devices answer reads and writes on these ends by themselves.
// Threads: the transport's.
// Owns: the links and the queue pairs of each link; both end together.
// Trusts: no message before decode_body(). The resources of a peer are bounded.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "transport/flow/edges.h"
#include "transport/one_sided/control_link.h"
#include "transport/one_sided/local_regions.h"
#include "transport/rdma/device_registrar.h"
#include "transport/rdma/opener.h"
#include "transport/rdma/queue_pair.h"

namespace mc::transport::rdma {

inline constexpr std::uint32_t kMaxServedLinks = 4096;
inline constexpr std::uint32_t kMaxServedPairs = 16384;

class Responder {
 public:
  // drain: takes the completions of a device, so that an arrived notification is not lost with the
  // queue pair.
  using Drain = std::function<void(Device&)>;
  Responder(const RdmaOptions& options, const DeviceSlots& devices, const LocalRegions& regions,
            Edges& edges, Opener& opener, Drain drain)
      : options_(options),
        devices_(devices),
        regions_(regions),
        edges_(edges),
        opener_(opener),
        drain_(std::move(drain)) {}
  ~Responder();

  Status attach(Link link);
  // The peer that sends on the queue pair.
  std::optional<NodeId> sender(const Device& device, std::uint32_t pair_number) const {
    const auto at = senders_.find({&device, pair_number});
    return at == senders_.end() ? std::nullopt : std::optional(at->second);
  }
  // Tells every peer the devices that this host has now.
  void announce();
  // Before a device is closed.
  void on_closing(const Device& device);
  std::size_t pairs() const { return senders_.size(); }

 private:
  struct Served {
    QueuePair pair;
    std::uint32_t serial = 0;
  };
  class ServedLink : public Watched {
   public:
    ServedLink(Responder& owner, std::uint64_t number, Link from)
        : id(number), node(from.node), link(std::move(from.socket), kProtocol), owner_(owner) {}
    void on_edge(std::uint64_t now_ns) override;

    const std::uint64_t id;
    const NodeId node;
    ControlLink link;
    std::uint64_t token = 0;  // 0: no hello yet
    std::map<std::uint32_t, Served> pairs;
    std::map<std::uint32_t, std::uint32_t> opening;  // lane to serial

   private:
    Responder& owner_;
  };

  bool take(ServedLink& link, const Message& message);
  bool greet(ServedLink& link, const HelloBody& hello);
  bool open(ServedLink& link, const OpenBody& open);
  void on_ready(std::uint64_t link_id, OpenedBody answer, QueuePair pair, const Status& status);
  void close_pair(ServedLink& link, std::uint32_t lane);
  void close_link(ServedLink& link);
  std::vector<DeviceEntry> entries() const;

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
  const LocalRegions& regions_;
  Edges& edges_;
  Opener& opener_;
  Drain drain_;
  std::unordered_map<ServedLink*, std::unique_ptr<ServedLink>> links_;
  // The last address of each device, to describe the slot of a device that is gone.
  mutable std::array<std::optional<PortAddress>, kMaxDevices> known_;
  std::map<std::pair<const Device*, std::uint32_t>, NodeId> senders_;
  std::uint32_t next_packet_number_ = 0;
  std::uint64_t next_link_ = 1;
  std::size_t opening_count_ = 0;
};

}  // namespace mc::transport::rdma
