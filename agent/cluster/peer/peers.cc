// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/peers.h"

#include <algorithm>

namespace mc::agent {

void Peers::update(const metadata::wire::MembersAnswer& answer) {
  std::map<MemberId, metadata::wire::MemberInfo> members;
  for (const metadata::wire::MemberInfo& member : answer.members) {
    members[member.descriptor.node] = member;
  }
  // A member that came back at another address, or as another process, gets a new connection.
  for (auto at = ids_.begin(); at != ids_.end();) {
    const auto now = members.find(at->first);
    const auto before = members_.find(at->first);
    const bool same = now != members.end() && before != members_.end() &&
                      now->second.descriptor.incarnation == before->second.descriptor.incarnation &&
                      now->second.descriptor.address == before->second.descriptor.address;
    if (same) {
      ++at;
      continue;
    }
    transport_->close_peer(at->second);
    std::erase_if(regions_, [&](const auto& region) { return region.first.first == at->first; });
    lost_.erase(at->first);
    nodes_.erase(at->second);
    at = ids_.erase(at);
  }
  members_ = std::move(members);
}

const metadata::wire::MemberInfo* Peers::find(MemberId node) const {
  const auto at = members_.find(node);
  return at == members_.end() ? nullptr : &at->second;
}

std::string Peers::address_of(MemberId node) const {
  const metadata::wire::MemberInfo* const member = find(node);
  return member == nullptr ? std::string() : member->descriptor.address;
}

std::optional<transport::PeerId> Peers::id_of(MemberId node) {
  if (node == self_ || !members_.contains(node)) return std::nullopt;
  if (const auto at = ids_.find(node); at != ids_.end()) return at->second;
  transport::PeerSpec spec;
  spec.node = node;
  const auto peer = transport_->connect(spec);
  if (!peer) return std::nullopt;
  ids_[node] = *peer;
  nodes_[*peer] = node;
  return *peer;
}

MemberId Peers::node_of(transport::PeerId peer) const {
  const auto at = nodes_.find(peer);
  return at == nodes_.end() ? metadata::kNoNode : at->second;
}

std::optional<transport::RemoteRegionId> Peers::region_of(MemberId node,
                                                          std::span<const std::byte> text) {
  RegionText key{node, {text.begin(), text.end()}};
  if (const auto at = regions_.find(key); at != regions_.end()) return at->second;
  const auto peer = id_of(node);
  if (!peer) return std::nullopt;
  const auto region = transport_->import_region(*peer, text);
  if (!region) return std::nullopt;
  regions_.emplace(std::move(key), *region);
  return *region;
}

bool Peers::send(transport::PeerId peer, std::vector<std::byte> bytes, std::uint64_t cookie,
                 std::uint64_t deadline_ns, std::uint64_t now_ns) {
  const transport::Piece piece{bytes.data(), bytes.size(), transport::kNoRegion};
  transport::Operation operation;
  operation.verb = transport::Verb::kNotify;
  operation.peer = peer;
  operation.cookie = cookie;
  operation.deadline_ns = deadline_ns;
  operation.pieces = {&piece, 1};
  if (transport_->submit({&operation, 1}, now_ns) != 1) return false;
  outbox_.emplace(operation.id, std::move(bytes));
  return true;
}

std::vector<MemberId> Peers::reading_order(const metadata::KeyHash& name,
                                           std::span<const MemberId> holders,
                                           std::uint32_t on_disk) const {
  std::vector<metadata::NodeView> views;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const MemberId node = holders[i];
    if (node == self_) continue;
    metadata::NodeView view;
    view.node = node;
    view.on_disk = i < metadata::kMaxHolders && (on_disk >> i & 1) != 0;
    if (const metadata::wire::MemberInfo* const member = find(node)) {
      view.host = member->descriptor.host;
      view.zone = member->descriptor.zone;
      view.suspected = member->state == metadata::MemberState::kSuspected;
    }
    view.suspected |= is_lost(node);
    views.push_back(view);
  }
  return metadata::order_for_read(reader_, name, views);
}

}  // namespace mc::agent
