// SPDX-License-Identifier: Apache-2.0
//
// A stripe, which is a piece of a large object. The holder stores the stripe as an
//   separate object, under a key that no client may use. A label behind the stripe's bytes
//   describes the whole object.
//
//   key    kStripePrefix, put (8 bytes), number (2 bytes)
//   label  key of the whole, padded to 8; then
//          0       8            16          24             32        40      42
//          │ magic │ whole bytes│ whole sum │ stripe bytes │ own sum │ count │ key bytes │ 0 … 0 48
//   All fields are little-endian, like the hosts.
// Threads: values.
// Owns: nothing.
// Trusts: nothing. Clients can write to the pool that has the label. decode_label() copies the
//   label, checks the copy, and returns none for an invalid label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metadata/directory/slot.h"

namespace mc::agent {

inline constexpr std::uint16_t kMaxStripes = 64;  // of one object
inline constexpr std::uint64_t kLeastStripeBytes = 1u << 20;

// Describes an object in stripes. All stripes have the same size, except a shorter last stripe.
struct StripeFacts {
  std::uint64_t put = 0;  // names the put in the whole cluster
  std::uint64_t whole_bytes = 0;
  std::uint64_t whole_sum = 0;  // checksum of the object, begun with the key's hash
  std::uint64_t stripe_bytes = 0;
  std::uint16_t number = 0;  // of the stripe; in kStripes messages: count of stripes
  std::uint16_t count = 0;
  std::uint32_t keep_ms = 0;  // how long a holder keeps an unsealed stripe

  bool sound() const;
  std::uint64_t bytes_of(std::uint16_t stripe) const;
  bool same_object(const StripeFacts& other) const;
};
static_assert(sizeof(StripeFacts) == 40);

// The stripe size for an object: at least `wanted` bytes, a multiple of `unit`, and large enough
// for at most kMaxStripes stripes.
std::uint64_t stripe_bytes_for(std::uint64_t whole_bytes, std::uint64_t wanted, std::uint64_t unit);

struct StripeName {
  std::uint64_t put = 0;
  std::uint16_t number = 0;
};
std::string stripe_key(const StripeName& name);
// Returns none for the key of an ordinary object.
std::optional<StripeName> parse_stripe_key(std::string_view key);

struct StripeLabel {
  StripeFacts facts;          // put and number come from the stripe's key; keep_ms is unused
  std::uint64_t own_sum = 0;  // of the stripe's bytes, begun with the hash of the stripe's key
  std::string key;            // of the whole object
};
std::vector<std::byte> encode_label(const StripeLabel& label);
// The size of the label that encode_label() returns.
std::uint64_t label_bytes(std::size_t key_bytes);
// `end` is the end of a stripe's object: at least kMostLabelBytes, or the whole object.
std::optional<StripeLabel> decode_label(std::span<const std::byte> end, const StripeName& name);
inline constexpr std::uint64_t kMostLabelBytes = 1024 + 48;

}  // namespace mc::agent
