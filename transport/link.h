// SPDX-License-Identifier: Apache-2.0
//
// What it is: where a transport's connections come from. Ports, keys and who may speak belong to
//   the agent: a transport asks its Dialer for a lane and is handed a Link, a connected stream
//   socket whose handshake is over, by Transport::attach(). What a peer dialed comes the same way.
//
//     connect() ─► Dialer.dial(lane) ─► … connect, hello, proof of the key … ─► attach(Link)
//
//   tcp moves its bytes over the links. rdma and fabric agree over one on how their devices reach
//   each other, and keep it as the peer's sign of life. All come through the same port: the first
//   bytes of a link say whose it is, and what else the other side speaks.
// Threads: dial() is called by the transport's thread; attach() must be, too.
// Owns: a Link owns its socket. Trusts: node and incarnation are what the handshake proved.
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

// What is spoken on a link.
enum class LinkProtocol : std::uint8_t { kTcp = 0, kRdma = 1, kFabric = 2 };
inline constexpr std::uint8_t kLastLinkProtocol = 2;
// The feature of a host that takes links of that protocol; those of kTcp all take.
constexpr std::uint32_t feature_of(LinkProtocol protocol) {
  return protocol == LinkProtocol::kTcp ? 0 : 1u << (static_cast<unsigned>(protocol) - 1);
}

struct PeerSpec {
  NodeId node = 0;
  std::uint32_t bulk_lanes = 4;  // and a small one
};

struct DialRequest {
  std::uint64_t peer = 0;  // PeerId, to be given back in Link::peer
  NodeId node = 0;
  std::uint32_t lane = 0;
  LaneRole role = LaneRole::kBulk;
  LinkProtocol protocol = LinkProtocol::kTcp;
};

class Dialer {
 public:
  virtual ~Dialer() = default;
  // Must not wait. The answer is Transport::attach() or dial_failed(), from within or later.
  virtual void dial(const DialRequest& request) = 0;
};

namespace tcp {
class Session;
}

struct Link {
  Fd socket;
  std::shared_ptr<tcp::Session> tls;  // over the socket; null: plain. tcp's links alone have one
  bool accepted = false;              // the other side dialed: it asks, we serve
  std::uint64_t peer = 0;             // ours, when we dialed
  std::uint32_t lane = 0;
  LaneRole role = LaneRole::kBulk;
  LinkProtocol protocol = LinkProtocol::kTcp;
  NodeId node = 0;                // of the other side
  std::uint64_t incarnation = 0;  // of the other side
  std::uint32_t features = 0;     // that both sides have
};

}  // namespace mc::transport
