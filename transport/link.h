// SPDX-License-Identifier: Apache-2.0
//
// The source of a transport's connections. Ports, keys and the right to connect belong
//   to the agent: a transport asks the Dialer for a lane. The agent hands the lane over by
//   Transport::attach() as a Link: a connected stream socket whose handshake is over. The lanes
//   that a peer dialed come the same way.
//
//     connect() ─► Dialer.dial(lane) ─► … connect, hello, proof of the key … ─► attach(Link)
//
//   tcp moves the bytes over the links. Over a link, rdma and fabric agree on how the devices
//   reach each other; the link is also the peer's sign of life. All links use the same port. The
//   first bytes of a link name the protocol, and the other protocols of the dialing side.
// Threads: the transport's thread calls dial() and attach().
// Owns: a Link owns the socket.
// Trusts: node and incarnation, which the handshake proved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "libmc/base/fd.h"

namespace mc::transport {

using NodeId = std::uint64_t;

enum class LaneRole : std::uint8_t {
  kSmall = 0,  // requests up to a few KiB, so that they do not wait behind large ones
  kBulk = 1,
};
inline constexpr std::uint8_t kLastLaneRole = 1;

// The protocol of a link.
enum class LinkProtocol : std::uint8_t { kTcp = 0, kRdma = 1, kFabric = 2 };
inline constexpr std::uint8_t kLastLinkProtocol = 2;
// The feature bit of a host that accepts links of the protocol. Every host accepts kTcp.
constexpr std::uint32_t feature_of(LinkProtocol protocol) {
  return protocol == LinkProtocol::kTcp ? 0 : 1u << (static_cast<unsigned>(protocol) - 1);
}

struct PeerSpec {
  NodeId node = 0;
  std::uint32_t bulk_lanes = 4;  // besides a small lane
};

struct DialRequest {
  std::uint64_t peer = 0;  // PeerId, returned in Link::peer
  NodeId node = 0;
  std::uint32_t lane = 0;
  LaneRole role = LaneRole::kBulk;
  LinkProtocol protocol = LinkProtocol::kTcp;
};

class Dialer {
 public:
  virtual ~Dialer() = default;
  // Must not wait. The answer is Transport::attach() or dial_failed(), within this call or later.
  virtual void dial(const DialRequest& request) = 0;
};

namespace tcp {
class TlsSession;
}

struct Link {
  Fd socket;
  std::shared_ptr<tcp::TlsSession> tls;  // over the socket; null: plain. Only tcp uses TLS
  bool accepted = false;                 // the other side dialed and asks; this side serves
  std::uint64_t peer = 0;                // PeerId, if this side dialed
  std::uint32_t lane = 0;
  LaneRole role = LaneRole::kBulk;
  LinkProtocol protocol = LinkProtocol::kTcp;
  NodeId node = 0;                // of the other side
  std::uint64_t incarnation = 0;  // of the other side
  std::uint32_t features = 0;     // of both sides
};

}  // namespace mc::transport
