// SPDX-License-Identifier: Apache-2.0
#include "crash/values.h"

#include <algorithm>
#include <cstring>

namespace mc::crash {

namespace {

// SplitMix64: fast, and no two positions of two values are equal.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t seed_of(std::string_view key, std::uint64_t version, std::size_t size_bytes) {
  std::uint64_t seed = 0xcbf29ce484222325ull;
  for (const char c : key) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mixed(mixed(seed ^ version) ^ size_bytes);
}

std::uint64_t word_at(std::uint64_t seed, std::size_t index) {
  return mixed(seed + index * 0x9e3779b97f4a7c15ull);
}

}  // namespace

std::vector<std::byte> make_value(std::string_view key, std::uint64_t version,
                                  std::size_t size_bytes) {
  std::vector<std::byte> value(size_bytes);
  const std::uint64_t seed = seed_of(key, version, size_bytes);
  for (std::size_t at = 0; at < size_bytes; at += 8) {
    const std::uint64_t word = at == 0 ? version : word_at(seed, at / 8);
    std::memcpy(value.data() + at, &word, std::min<std::size_t>(8, size_bytes - at));
  }
  return value;
}

std::optional<std::uint64_t> version_in(std::string_view key, std::span<const std::byte> bytes) {
  if (bytes.size() < 16) return std::nullopt;
  std::uint64_t version = 0;
  std::memcpy(&version, bytes.data(), 8);
  const std::uint64_t seed = seed_of(key, version, bytes.size());
  for (std::size_t at = 8; at < bytes.size(); at += 8) {
    const std::uint64_t word = word_at(seed, at / 8);
    if (std::memcmp(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at)) != 0) {
      return std::nullopt;
    }
  }
  return version;
}

std::vector<std::byte> bytes_of(const mc_view& view) {
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_view_spans(&view, spans, MC_MAX_EXTENTS);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* data = static_cast<const std::byte*>(spans[i].data);
    bytes.insert(bytes.end(), data, data + spans[i].size);
  }
  return bytes;
}

void write_into(const mc_reservation* reservation, std::span<const std::byte> value) {
  mc_span spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_reservation_spans(reservation, spans, MC_MAX_EXTENTS);
  for (std::size_t i = 0; i < count && !value.empty(); ++i) {
    const std::size_t step = std::min<std::size_t>(spans[i].size, value.size());
    std::memcpy(spans[i].data, value.data(), step);
    value = value.subspan(step);
  }
}

}  // namespace mc::crash
