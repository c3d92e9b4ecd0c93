// SPDX-License-Identifier: Apache-2.0
//
// What it is: the first bytes on a link, in both directions: who speaks, which version, what it
//   can, and which transport the link is for. It proves nothing; what does is a Handshake of the
//   agent's that wraps this one.
// Threads: values; a Handshake belongs to its socket's owner.
// Trusts: nothing: exactly kHelloBytes are read, checked, then used.
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
inline constexpr std::uint16_t kDataVersion = 1;

struct Hello {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t size_bytes;  // of this struct
  std::uint32_t features;    // offered; both sides use what both offer
  std::uint64_t node;        // who speaks
  std::uint64_t to_node;     // whom it means to speak to; 0 in the answer
  std::uint64_t incarnation;
  std::uint32_t lane;
  std::uint8_t role;
  std::uint8_t protocol;  // other than 0 only to who has told its feature
  std::uint8_t reserved0[2];
  std::uint64_t reserved1[2];
};
inline constexpr std::size_t kHelloBytes = 64;
static_assert(sizeof(Hello) == kHelloBytes);
static_assert(offsetof(Hello, node) == 16 && offsetof(Hello, lane) == 40);
static_assert(offsetof(Hello, protocol) == 45 && offsetof(Hello, reserved1) == 48);

struct Self {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t features = 0;
};

Hello make_hello(const Self& self, NodeId to_node, std::uint32_t lane, LaneRole role,
                 LinkProtocol protocol = LinkProtocol::kTcp);
// Errors: MC_VERSION_MISMATCH, MC_INVALID_ARGUMENT with what is wrong.
Result<Hello> decode_hello(std::span<const std::byte> bytes);

// What runs on a fresh socket before it is a link. Non-blocking.
class Handshake {
 public:
  enum class State { kWantsRead, kWantsWrite, kDone, kFailed };
  virtual ~Handshake() = default;
  // Goes on until the socket would wait. Reads no byte beyond its own.
  virtual State advance(const Wire& wire) = 0;
  // After kDone: everything but the socket, and the session over it.
  virtual Link link() const = 0;
  // After kFailed: why.
  virtual Status status() const = 0;
};

// Hellos alone: for tests, and for sites whose network is the protection.
std::unique_ptr<Handshake> make_dialing_handshake(const Self& self, const DialRequest& request);
std::unique_ptr<Handshake> make_accepting_handshake(const Self& self);

}  // namespace mc::transport::tcp
