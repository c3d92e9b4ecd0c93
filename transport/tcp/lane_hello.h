// SPDX-License-Identifier: Apache-2.0
//
// The first bytes on a link, in both directions: the sender with version and features,
//   and the transport of the link. A hello proves nothing. The agent wraps this handshake in a
//   handshake that proves the key.
// Threads: values. A LaneHandshake belongs to the socket's owner.
// Trusts: nothing. Exactly kHelloBytes are read, checked, then used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "mc/status.h"
#include "transport/link.h"
#include "transport/tcp/wire.h"

namespace mc::transport::tcp {

inline constexpr std::uint64_t kHelloMagic = 0x31454e414c434dull;  // "MCLANE1" as bytes
inline constexpr std::uint16_t kDataVersion = 2;

struct LaneHello {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t size_bytes;  // of this struct
  std::uint32_t features;    // offered; both sides use the features that both offer
  std::uint64_t node;        // the sender
  std::uint64_t to_node;     // the meant receiver; 0 in the answer
  std::uint64_t incarnation;
  std::uint32_t lane;
  std::uint8_t role;
  std::uint8_t protocol;  // not 0 only if the receiver has told the protocol's feature
  std::uint8_t reserved0[2];
  std::uint64_t reserved1[2];
};
inline constexpr std::size_t kHelloBytes = 64;
static_assert(sizeof(LaneHello) == kHelloBytes);
static_assert(offsetof(LaneHello, node) == 16 && offsetof(LaneHello, lane) == 40);
static_assert(offsetof(LaneHello, protocol) == 45 && offsetof(LaneHello, reserved1) == 48);

struct Self {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t features = 0;
};

LaneHello make_hello(const Self& self, NodeId to_node, std::uint32_t lane, LaneRole role,
                     LinkProtocol protocol = LinkProtocol::kTcp);
// Errors: MC_VERSION_MISMATCH, MC_INVALID_ARGUMENT with the cause.
Result<LaneHello> decode_hello(std::span<const std::byte> bytes);

// The exchange on a fresh socket before the socket is a link. Non-blocking.
class LaneHandshake {
 public:
  enum class State { kWantsRead, kWantsWrite, kDone, kFailed };
  virtual ~LaneHandshake() = default;
  // Goes on until the socket would wait. Reads no byte beyond the handshake.
  virtual State advance(const Wire& wire) = 0;
  // After kDone: the link without the socket and the session over the socket.
  virtual Link link() const = 0;
  // After kFailed: the cause.
  virtual Status status() const = 0;
};

// Hellos alone: for tests, and for sites that the network itself protects.
std::unique_ptr<LaneHandshake> make_dialing_handshake(const Self& self, const DialRequest& request);
std::unique_ptr<LaneHandshake> make_accepting_handshake(const Self& self);

}  // namespace mc::transport::tcp
