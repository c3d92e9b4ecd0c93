// SPDX-License-Identifier: Apache-2.0
//
// What it is: what two agents say over the link of a fabric peer. The side that dialed asks.
//
//     asking end                                serving end
//     kHello    version                     ─►
//                                           ◄─  kDomains  each with address, epoch and beacon; and
//                                                         again when they change
//     kDescribe region                      ─►  a key of it did not hold
//                                           ◄─  kDescription region text…        none: it is gone
//     kNotify   number payload…             ─►
//                                           ◄─  kNotified number outcome
//     kAttend                               ─►  requests are coming: the provider is to be called
//                                               often for a while, if it works only then
//     kMove     slot epoch                  ─►  writes that came to this serving endpoint are to
//                                               land no more: they are sent again
//                                           ◄─  kDomains, with another one
//     kPing                                 ─►
//                                           ◄─  kPong
//
//   Frames are those of control_message.h.
// Threads: values.
// Trusts: nothing: decode_body() copies, checks, and gives values or nothing.
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
// So long a serving side is attentive after kAttend; an asker with requests says it again before.
inline constexpr std::uint64_t kAttentionNs = 150'000'000;
inline constexpr std::uint64_t kAttendAgainNs = kAttentionNs / 3;
inline constexpr std::size_t kMaxDomains = 32;  // of one agent
inline constexpr std::size_t kMaxAddressBytes = 128;
inline constexpr std::size_t kMaxNameBytes = 48;  // of a domain, with the zero at its end

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

// One of the serving agent's domains: where its serving endpoint is, and eight bytes there that
// hold the epoch and that anybody may read.
struct DomainEntry {
  std::uint64_t epoch;  // another one for each endpoint that serves: keys of an earlier are void
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
static_assert(kMaxBodyBytes >= sizeof(NotifyBody) + kMaxNotificationBytes &&
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

// What a message says: the member that its kind names holds.
struct Message {
  MessageKind kind = MessageKind::kPing;
  HelloBody hello{};
  RegionBody region{};
  NotifyBody notify{};
  NotifiedBody notified{};
  MoveBody move{};
  std::vector<DomainEntry> domains;
  std::span<const std::byte> text;  // within the bytes that were decoded; the payload, too
};
// from_asker: what that end of a link may send; kinds of the other end are refused.
std::optional<Message> decode_body(const ControlHeader& header, std::span<const std::byte> bytes,
                                   bool from_asker);

}  // namespace mc::transport::fabric
