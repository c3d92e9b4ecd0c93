// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/stripe.h"

#include <algorithm>
#include <cstring>

#include "mc/limits.h"
#include "shm/messages.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kMagic = 0x3170697274736d63ull;  // "cmstrip1"

struct Tail {
  std::uint64_t magic;
  std::uint64_t whole_bytes;
  std::uint64_t whole_sum;
  std::uint64_t stripe_bytes;
  std::uint64_t own_sum;
  std::uint16_t count;
  std::uint16_t key_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(Tail) == 48);
static_assert(kMostLabelBytes == MC_MAX_KEY_BYTES + sizeof(Tail));

}  // namespace

bool StripeFacts::sound() const {
  return put != 0 && whole_bytes >= 1 && whole_bytes <= MC_MAX_OBJECT_BYTES && stripe_bytes >= 1 &&
         stripe_bytes <= MC_MAX_OBJECT_BYTES && count >= 1 && count <= kMaxStripes &&
         count == (whole_bytes - 1) / stripe_bytes + 1;
}

std::uint64_t StripeFacts::bytes_of(std::uint16_t stripe) const {
  return std::min(stripe_bytes, whole_bytes - stripe * stripe_bytes);
}

bool StripeFacts::same_object(const StripeFacts& other) const {
  return put == other.put && whole_bytes == other.whole_bytes && whole_sum == other.whole_sum &&
         stripe_bytes == other.stripe_bytes && count == other.count;
}

std::uint64_t stripe_bytes_for(std::uint64_t whole_bytes, std::uint64_t wanted,
                               std::uint64_t unit) {
  const std::uint64_t least = (whole_bytes - 1) / kMaxStripes + 1;
  return (std::max(least, wanted) + unit - 1) / unit * unit;
}

std::string stripe_key(const StripeName& name) {
  std::string key(shm::kStripePrefix);
  key.append(reinterpret_cast<const char*>(&name.put), sizeof name.put);
  key.append(reinterpret_cast<const char*>(&name.number), sizeof name.number);
  return key;
}

std::optional<StripeName> parse_stripe_key(std::string_view key) {
  StripeName name;
  if (key.size() != shm::kStripePrefix.size() + sizeof name.put + sizeof name.number ||
      !key.starts_with(shm::kStripePrefix)) {
    return std::nullopt;
  }
  std::memcpy(&name.put, key.data() + shm::kStripePrefix.size(), sizeof name.put);
  std::memcpy(&name.number, key.data() + shm::kStripePrefix.size() + sizeof name.put,
              sizeof name.number);
  if (name.put == 0 || name.number >= kMaxStripes) return std::nullopt;
  return name;
}

std::uint64_t label_bytes(std::size_t key_bytes) { return (key_bytes + 7) / 8 * 8 + sizeof(Tail); }

std::vector<std::byte> encode_label(const StripeLabel& label) {
  const Tail tail{kMagic,
                  label.facts.whole_bytes,
                  label.facts.whole_sum,
                  label.facts.stripe_bytes,
                  label.own_sum,
                  label.facts.count,
                  static_cast<std::uint16_t>(label.key.size()),
                  0};
  std::vector<std::byte> bytes(label_bytes(label.key.size()));
  std::memcpy(bytes.data(), label.key.data(), label.key.size());
  std::memcpy(bytes.data() + bytes.size() - sizeof tail, &tail, sizeof tail);
  return bytes;
}

std::optional<StripeLabel> decode_label(std::span<const std::byte> end, const StripeName& name) {
  Tail tail{};
  if (end.size() < sizeof tail) return std::nullopt;
  std::memcpy(&tail, end.data() + end.size() - sizeof tail, sizeof tail);
  if (tail.magic != kMagic || tail.key_bytes == 0 || tail.key_bytes > MC_MAX_KEY_BYTES ||
      label_bytes(tail.key_bytes) > end.size()) {
    return std::nullopt;
  }
  StripeLabel label;
  label.facts.put = name.put;
  label.facts.number = name.number;
  label.facts.whole_bytes = tail.whole_bytes;
  label.facts.whole_sum = tail.whole_sum;
  label.facts.stripe_bytes = tail.stripe_bytes;
  label.facts.count = tail.count;
  label.own_sum = tail.own_sum;
  if (!label.facts.sound() || name.number >= tail.count) return std::nullopt;
  const auto* const key = end.data() + end.size() - label_bytes(tail.key_bytes);
  label.key.assign(reinterpret_cast<const char*>(key), tail.key_bytes);
  return label;
}

}  // namespace mc::agent
