// SPDX-License-Identifier: Apache-2.0
//
// The label at the end of a possible stripe, in a pool that clients write. A decoded label is
// within its limits and encodes to an equal label.
#include "agent/cluster/peer/stripe.h"
#include "bytes.h"
#include "mc/limits.h"

using namespace mc::agent;  // NOLINT: a program's only file
using mc::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = parse_stripe_key(text)) require(stripe_key(*name) == text);
  const StripeName name{7, static_cast<std::uint16_t>(size == 0 ? 0 : data[0] % kMaxStripes)};
  const auto label = decode_label(bytes, name);
  if (!label) return 0;
  require(label->facts.sound() && label->facts.number < label->facts.count);
  require(!label->key.empty() && label->key.size() <= MC_MAX_KEY_BYTES);
  const std::vector<std::byte> again = encode_label(*label);
  require(again.size() == label_bytes(label->key.size()) && again.size() <= kMostLabelBytes);
  const auto twice = decode_label(again, name);
  require(twice && twice->key == label->key && twice->facts.same_object(label->facts));
  return 0;
}
