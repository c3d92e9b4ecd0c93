// SPDX-License-Identifier: Apache-2.0
//
// The other members as this agent knows the cluster: addresses, reachability, regions,
//   and the order for reading.
// Threads: The agent's loop.
// Owns: Names, no connections. The transport owns the connections.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/peer/peer_messages.h"
#include "metadata/placement/placement.h"
#include "transport/transport.h"

namespace mc::agent {

class Peers {
 public:
  static constexpr std::uint64_t kToldCookie = 1;  // of completions of tell()

  Peers(MemberId self, metadata::Reader reader) : self_(self), reader_(reader) {}
  void set_transport(transport::Transport& transport) { transport_ = &transport; }

  // Takes the master's list. Closes peers that the list no longer names.
  void update(const metadata::wire::MembersAnswer& answer);
  MemberId self() const { return self_; }
  const metadata::wire::MemberInfo* find(MemberId node) const;
  std::string address_of(MemberId node) const;
  const std::map<MemberId, metadata::wire::MemberInfo>& all() const { return members_; }

  // Connects on first use. Empty: the node is no member, or is this node.
  std::optional<transport::PeerId> id_of(MemberId node);
  MemberId node_of(transport::PeerId peer) const;
  // Imports a region that the node described. The same text gives the same id.
  std::optional<transport::RemoteRegionId> region_of(MemberId node,
                                                     std::span<const std::byte> text);
  // Orders holders for reading. Leaves this node out and puts unreachable nodes last. on_disk: a bit for each holder
  // that has the object on a disk only.
  std::vector<MemberId> reading_order(const metadata::KeyHash& name,
                                      std::span<const MemberId> holders,
                                      std::uint32_t on_disk = 0) const;

  // Sends a short message. False: the node is no member, or there is no room now. The completion
  // event carries the cookie; pass the event's operation to sent().
  template <typename Message>
  bool notify(MemberId node, const Message& message, std::uint64_t cookie,
              std::uint64_t deadline_ns, std::uint64_t now_ns) {
    const auto peer = id_of(node);
    return peer && send(*peer, encode_peer_message(message), cookie, deadline_ns, now_ns);
  }
  // Sends a message whose completion nobody waits for. If the message cannot be sent, the receiver
  // asks again or asks another host.
  template <typename Message>
  void tell(MemberId node, const Message& message, std::uint64_t now_ns) {
    if (!notify(node, message, kToldCookie, now_ns + kTellNs, now_ns)) missed();
  }
  void sent(transport::OperationId operation) { outbox_.erase(operation); }

  // A message named a node that no list of members has named yet. The list should be read again.
  void missed() { missed_ = true; }
  bool take_missed() { return std::exchange(missed_, false); }

  void lost(MemberId node) { lost_.insert(node); }
  void back(MemberId node) { lost_.erase(node); }
  bool is_lost(MemberId node) const { return lost_.contains(node); }
  std::size_t lost_count() const { return lost_.size(); }

 private:
  static constexpr std::uint64_t kTellNs = 1'000'000'000;

  bool send(transport::PeerId peer, std::vector<std::byte> bytes, std::uint64_t cookie,
            std::uint64_t deadline_ns, std::uint64_t now_ns);

  MemberId self_;
  metadata::Reader reader_;
  transport::Transport* transport_ = nullptr;
  std::map<MemberId, metadata::wire::MemberInfo> members_;
  std::map<MemberId, transport::PeerId> ids_;
  std::map<transport::PeerId, MemberId> nodes_;
  using RegionText = std::pair<MemberId, std::vector<std::byte>>;
  std::map<RegionText, transport::RemoteRegionId> regions_;
  std::set<MemberId> lost_;
  bool missed_ = false;
  // Bytes of the messages in flight, which the transport still reads.
  std::unordered_map<transport::OperationId, std::vector<std::byte>> outbox_;
};

}  // namespace mc::agent
