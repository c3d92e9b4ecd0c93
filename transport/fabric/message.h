// SPDX-License-Identifier: Apache-2.0
//
// The messages of two agents over the link of a fabric peer. The dialing side asks.
//
//     asking end                                serving end
//     kHello    version                     ─►
//                                           ◄─  kDomains  each with address, epoch and beacon; and
//                                                         again when they change
//     kDescribe region                      ─►  a key of the region did not hold
//                                           ◄─  kDescription region text…        no text: gone
//     kNotify   number payload…             ─►
//                                           ◄─  kNotified number outcome
//     kAttend                               ─►  requests are coming: call the provider often for a
//                                               while, if it works only while called
//     kMove     slot epoch                  ─►  close this serving endpoint, so that writes to it
//                                               land no more; the asker repeats the writes
//                                           ◄─  kDomains, with another endpoint
//     kPing                                 ─►
//                                           ◄─  kPong
//
//   Frames are those of control_message.h.
// Threads: values.
// Trusts: nothing. decode_body() copies and checks, and returns a value or none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/limits.h"
#include "transport/one_sided/control_message.h"
#include "transport/one_sided/region_descriptor.h"
#include "transport/outcome.h"

namespace mc::transport::fabric {

inline constexpr std::uint32_t kMessageMagic = 0x3146434d;  // "MCF1"
inline constexpr std::uint32_t kLinkVersion = 1;
// The time for which kAttend makes a serving side attentive. An asking side with requests repeats
// kAttend before the end.
inline constexpr std::uint64_t kAttentionNs = 150'000'000;
inline constexpr std::uint64_t kAttendAgainNs = kAttentionNs / 3;
inline constexpr std::size_t kMaxDomains = 32;  // of an agent
inline constexpr std::size_t kMaxAddressBytes = 128;
inline constexpr std::size_t kMaxNameBytes = 48;  // of a domain, with the final zero

enum class MessageKind : std::uint16_t {
  kHello = 1,
  kDescribe = 2,
  kNotify = 3,
  kPing = 4,
  kAttend = 5,
  kMove = 6,
  kDomains = 65,
  kDescription = 66,
  kNotified = 67,
  kPong = 68,
};

struct HelloBody {
  std::uint32_t version;
  std::uint32_t reserved;
};
static_assert(sizeof(HelloBody) == 8);

// A domain of the serving agent: the place of the serving endpoint and of the beacon, eight bytes
// that hold the epoch and that every peer may read.
struct DomainEntry {
  std::uint64_t epoch;  // differs for each serving endpoint; earlier keys are void
  std::uint64_t beacon_address;
  std::uint64_t beacon_key;
  std::uint32_t address_format;  // FI_SOCKADDR_IN …
  std::uint32_t protocol;        // FI_PROTO_EFA …
  std::uint16_t slot;
  std::uint16_t address_bytes;
  std::uint32_t reserved;
  std::array<char, kMaxNameBytes> name;
  std::array<std::uint8_t, kMaxAddressBytes> address;
};
static_assert(sizeof(DomainEntry) == 216 && offsetof(DomainEntry, name) == 40);

struct RegionBody {  // kDescribe; in kDescription the text follows
  std::uint64_t region;
};

struct MoveBody {
  std::uint64_t epoch;
  std::uint32_t slot;
  std::uint32_t reserved;
};
static_assert(sizeof(MoveBody) == 16);

struct NotifyBody {  // the payload follows
  std::uint64_t number;
};

struct NotifiedBody {
  std::uint64_t number;
  std::uint8_t outcome;
  std::uint8_t reserved[7];
};
static_assert(sizeof(NotifiedBody) == 16);

inline constexpr std::size_t kMaxBodyBytes = sizeof(RegionBody) + kMaxDescriptorBytes;
static_assert(kMaxBodyBytes >= sizeof(NotifyBody) + kMaxOneSidedNotificationBytes &&
              kMaxBodyBytes >= kMaxDomains * sizeof(DomainEntry));
inline constexpr ControlProtocol kProtocol{kMessageMagic, kMaxBodyBytes};
inline constexpr DescriptorFormat kDescriptorFormat{"fabric", 0x3346434d, sizeof(std::uint64_t),
                                                    kMaxDomains};  // "MCF3"

std::vector<std::byte> encode_empty(MessageKind kind);
std::vector<std::byte> encode(const HelloBody& body);
std::vector<std::byte> encode(const RegionBody& body);  // kDescribe
std::vector<std::byte> encode(const RegionBody& body, std::span<const std::byte> text);
std::vector<std::byte> encode(std::span<const DomainEntry> domains);
std::vector<std::byte> encode(const NotifyBody& body, std::span<const std::byte> payload);
std::vector<std::byte> encode(const NotifiedBody& body);
std::vector<std::byte> encode(const MoveBody& body);

// A decoded message; only the member that `kind` names is valid.
struct Message {
  MessageKind kind = MessageKind::kPing;
  HelloBody hello{};
  RegionBody region{};
  NotifyBody notify{};
  NotifiedBody notified{};
  MoveBody move{};
  std::vector<DomainEntry> domains;
  std::span<const std::byte> text;  // text or payload, within the decoded bytes
};
// from_asker: the sender is the asking end; kinds of the other end are refused.
std::optional<Message> decode_body(const ControlHeader& header, std::span<const std::byte> bytes,
                                   bool from_asker);

}  // namespace mc::transport::fabric
