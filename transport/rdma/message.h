// SPDX-License-Identifier: Apache-2.0
//
// The messages of two agents over the link of an rdma peer. The dialing side asks. The
//   queue pairs belong to the asking side; the serving side's ends only answer reads and
//   writes.
//
//     asking end                                serving end
//     kHello    version token               ─►  cuts the lanes of earlier links with that token
//                                           ◄─  kDevices  each with address and epoch; and again
//                                                         when they change
//     kOpen     lane serial device qp psn … ─►
//                                           ◄─  kOpened   lane serial qp psn …   or an outcome
//     kClose    lane serial                 ─►  no request of that queue pair lands any more
//                                           ◄─  kClosed   lane serial
//     kDescribe region                      ─►  the keys for a device's epoch are unknown
//                                           ◄─  kDescription region text…        no text: gone
//     kPing                                 ─►
//                                           ◄─  kPong
//
// Threads: values.
// Trusts: nothing. decode_body() copies and checks, and returns a value or none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/limits.h"
#include "transport/one_sided/control_message.h"
#include "transport/one_sided/region_descriptor.h"
#include "transport/outcome.h"
#include "transport/rdma/address.h"

namespace mc::transport::rdma {

inline constexpr std::uint32_t kMessageMagic = 0x3152434d;  // "MCR1"
inline constexpr std::uint32_t kLinkVersion = 1;
inline constexpr std::size_t kMaxDevices = 16;      // of an agent
inline constexpr std::uint32_t kMaxPairs = 64;      // queue pairs of a peer
inline constexpr std::uint32_t kMaxReadDepth = 16;  // reads that a device answers at once
inline constexpr std::uint32_t kPacketNumberMask = 0xffffff;

enum class MessageKind : std::uint16_t {
  kHello = 1,
  kOpen = 2,
  kClose = 3,
  kDescribe = 4,
  kPing = 5,
  kDevices = 65,
  kOpened = 66,
  kClosed = 67,
  kDescription = 68,
  kPong = 69,
};

struct HelloBody {
  std::uint64_t token;  // of this peer of the asking agent; the same on each link
  std::uint32_t version;
  std::uint32_t reserved;
};
static_assert(sizeof(HelloBody) == 16);

// A device of the serving agent; epoch 0: an unplugged device.
struct DeviceEntry {
  std::uint64_t epoch;  // differs each time the device is opened; earlier keys are void
  Gid gid;
  std::uint16_t lid;
  std::uint8_t slot;
  std::uint8_t layer;
  std::uint8_t mtu;
  std::uint8_t reserved[3];
};
static_assert(sizeof(DeviceEntry) == 32 && offsetof(DeviceEntry, lid) == 24);

struct OpenBody {
  std::uint32_t lane;
  std::uint32_t serial;  // higher than all before on this link
  std::uint64_t device_epoch;
  Gid gid;  // of the asking device
  std::uint32_t pair_number;
  std::uint32_t packet_number;
  std::uint16_t lid;
  std::uint8_t device;  // slot of the serving device
  std::uint8_t layer;
  std::uint8_t mtu;
  std::uint8_t read_depth;
  std::uint16_t reserved;
};
static_assert(sizeof(OpenBody) == 48 && offsetof(OpenBody, pair_number) == 32);

struct OpenedBody {
  std::uint32_t lane;
  std::uint32_t serial;
  Gid gid;
  std::uint32_t pair_number;
  std::uint32_t packet_number;
  std::uint16_t lid;
  std::uint8_t outcome;
  std::uint8_t mtu;         // the smaller of both
  std::uint8_t read_depth;  // the smaller of both
  std::uint8_t reserved[3];
};
static_assert(sizeof(OpenedBody) == 40 && offsetof(OpenedBody, lid) == 32);

struct LaneBody {  // kClose, kClosed
  std::uint32_t lane;
  std::uint32_t serial;
};
static_assert(sizeof(LaneBody) == 8);

struct RegionBody {  // kDescribe; in kDescription the text follows
  std::uint64_t region;
};

inline constexpr std::size_t kMaxBodyBytes = sizeof(RegionBody) + kMaxDescriptorBytes;
inline constexpr ControlProtocol kProtocol{kMessageMagic, kMaxBodyBytes};
inline constexpr DescriptorFormat kDescriptorFormat{"rdma", 0x3144434d, sizeof(std::uint32_t),
                                                    kMaxDevices};  // "MCD1"

std::vector<std::byte> encode_empty(MessageKind kind);
std::vector<std::byte> encode(const HelloBody& body);
std::vector<std::byte> encode(const OpenBody& body);
std::vector<std::byte> encode(const OpenedBody& body);
std::vector<std::byte> encode(MessageKind kind, const LaneBody& body);
std::vector<std::byte> encode(const RegionBody& body);  // kDescribe
std::vector<std::byte> encode(std::span<const DeviceEntry> devices);
std::vector<std::byte> encode(const RegionBody& body, std::span<const std::byte> text);

// A decoded message; only the member that `kind` names is valid.
struct Message {
  MessageKind kind = MessageKind::kPing;
  HelloBody hello{};
  OpenBody open{};
  OpenedBody opened{};
  LaneBody lane{};
  RegionBody region{};
  std::vector<DeviceEntry> devices;
  std::span<const std::byte> text;  // within the bytes that were decoded
};
// from_asker: the sender is the asking end; kinds of the other end are refused.
std::optional<Message> decode_body(const ControlHeader& header, std::span<const std::byte> bytes,
                                   bool from_asker);

}  // namespace mc::transport::rdma
