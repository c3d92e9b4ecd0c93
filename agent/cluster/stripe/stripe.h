// SPDX-License-Identifier: Apache-2.0
//
// What it is: a stripe: a part of a large object that its holder stores as an object of its own,
//   under a key that no client may use, with a label behind its bytes that says what it is a part
//   of.
//
//   key    kStripePrefix, put (8 bytes), number (2 bytes)
//   label  key of the whole, padded to 8; then
//          0       8            16          24             32        40      42
//          │ magic │ whole bytes│ whole sum │ stripe bytes │ own sum │ count │ key bytes │ 0 … 0 48
//   Little-endian, as the hosts are.
// Threads: values. Trusts: nothing: a label lies in a pool that clients may write; decode_label()
//   copies and checks, or gives nothing.
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

// An object in stripes: all of the same size but the last, which is what is left.
struct StripeFacts {
  std::uint64_t put = 0;  // names the put that they are of, in the whole cluster
  std::uint64_t whole_bytes = 0;
  std::uint64_t whole_sum = 0;  // checksum of the object, begun with its key's hash
  std::uint64_t stripe_bytes = 0;
  std::uint16_t number = 0;  // of the stripe, or how many of them
  std::uint16_t count = 0;
  std::uint32_t keep_ms = 0;  // for so long, unless it is sealed by then

  bool sound() const;
  std::uint64_t bytes_of(std::uint16_t stripe) const;
  bool same_object(const StripeFacts& other) const;
};
static_assert(sizeof(StripeFacts) == 40);

// The least stripe size, a multiple of `unit`, with which an object has no more than kMaxStripes.
std::uint64_t stripe_bytes_for(std::uint64_t whole_bytes, std::uint64_t wanted, std::uint64_t unit);

struct StripeName {
  std::uint64_t put = 0;
  std::uint16_t number = 0;
};
std::string stripe_key(const StripeName& name);
// None: the key of an ordinary object.
std::optional<StripeName> parse_stripe_key(std::string_view key);

struct StripeLabel {
  StripeFacts facts;          // put and number are the key's, keep_ms is nothing
  std::uint64_t own_sum = 0;  // of the stripe's bytes, begun with its own key's hash
  std::string key;            // of the whole
};
std::vector<std::byte> encode_label(const StripeLabel& label);
// Bytes that encode_label() gives.
std::uint64_t label_bytes(std::size_t key_bytes);
// From the last bytes of a stripe's object: all of it, or as many as a label can have.
std::optional<StripeLabel> decode_label(std::span<const std::byte> end, const StripeName& name);
inline constexpr std::uint64_t kMostLabelBytes = 1024 + 48;

}  // namespace mc::agent
