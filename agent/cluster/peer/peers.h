// SPDX-License-Identifier: Apache-2.0
//
// What it is: the other members as this agent knows them: where they are, whether they can be
//   reached, in which order to read from them, and their regions.
// Threads: the agent's loop. Owns: names, not connections: those are the transport's.
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
  Peers(MemberId self, metadata::Reader reader) : self_(self), reader_(reader) {}
  void set_transport(transport::Transport& transport) { transport_ = &transport; }

  // What the master says; who is gone from it is closed.
  void update(const metadata::wire::MembersAnswer& answer);
  const metadata::wire::MemberInfo* find(MemberId node) const;
  std::string address_of(MemberId node) const;
  const std::map<MemberId, metadata::wire::MemberInfo>& all() const { return members_; }

  // Connects on first use. None: not a member, or this node itself.
  std::optional<transport::PeerId> id_of(MemberId node);
  MemberId node_of(transport::PeerId peer) const;
  // Names a region that the node described; the same text gives the same name.
  std::optional<transport::RemoteRegionId> region_of(MemberId node,
                                                     std::span<const std::byte> text);
  // Holders in the order to read from; this node is left out, and nodes that cannot be reached
  // come last.
  std::vector<MemberId> reading_order(const metadata::KeyHash& name,
                                      std::span<const MemberId> holders) const;

  // Sends a short message; false: not a member, or no room now. Its event has the cookie, and
  // sent() must hear of it.
  bool notify(MemberId node, const PeerMessage& message, std::uint64_t cookie,
              std::uint64_t deadline_ns, std::uint64_t now_ns);
  void sent(transport::OperationId operation) { outbox_.erase(operation); }

  // A node was named that no list of members had yet: they should be asked for.
  void missed() { missed_ = true; }
  bool take_missed() { return std::exchange(missed_, false); }

  void lost(MemberId node) { lost_.insert(node); }
  void back(MemberId node) { lost_.erase(node); }
  bool is_lost(MemberId node) const { return lost_.contains(node); }

 private:
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
  // Messages on their way, whose bytes the transport still reads.
  std::unordered_map<transport::OperationId, std::vector<std::byte>> outbox_;
};

}  // namespace mc::agent
