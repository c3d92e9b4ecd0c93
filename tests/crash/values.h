// SPDX-License-Identifier: Apache-2.0
//
// Object bytes that identify their put. Key, version and length determine the bytes, so
//   any process can check whether it read exactly one put. Also copies such bytes through spans.
// Threads: any.
// Trusts: nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mc/mc.h"

namespace mc::crash {

// REQUIRES: size_bytes >= 16, version > 0.
std::vector<std::byte> make_value(std::string_view key, std::uint64_t version,
                                  std::size_t size_bytes);
// The version of the key whose value the bytes are; nullopt if the bytes are no complete value.
std::optional<std::uint64_t> version_in(std::string_view key, std::span<const std::byte> bytes);

// The bytes of the view's spans, one span after the other.
std::vector<std::byte> bytes_of(const mc_view& view);
// Copies the value into the reservation's spans, as far as the spans reach.
void write_into(const mc_reservation* reservation, std::span<const std::byte> value);

}  // namespace mc::crash
