// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/address.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

namespace mc::transport::rdma {

namespace {

bool is_ipv4(const std::uint8_t* gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid, kMapped, sizeof kMapped) == 0;
}

bool is_link_local(const std::uint8_t* gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

int rank(const GidEntry& entry) {
  if (entry.type == GidType::kInfiniBand) return entry.index == 0 ? 0 : 1;
  if (entry.type == GidType::kRoceV1) return 9;
  if (is_ipv4(entry.gid.raw)) return 0;
  return is_link_local(entry.gid.raw) ? 2 : 1;
}

int common_bits(const PortAddress& a, const PortAddress& b) {
  // An InfiniBand GID is a subnet and a number that says nothing about the device's place.
  const int bytes = a.layer == LinkLayer::kInfiniBand ? 8 : 16;
  int bits = 0;
  for (int i = 0; i < bytes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto differ = static_cast<std::uint8_t>(a.gid[at] ^ b.gid[at]);
    bits += std::countl_zero(differ);
    if (differ != 0) break;
  }
  return bits;
}

}  // namespace

std::optional<GidEntry> choose_gid(std::span<const GidEntry> entries, int wanted_index) {
  std::optional<GidEntry> best;
  for (const GidEntry& entry : entries) {
    if (wanted_index >= 0) {
      if (entry.index == static_cast<std::uint32_t>(wanted_index)) return entry;
      continue;
    }
    if (entry.type == GidType::kRoceV1) continue;
    if (!best || rank(entry) < rank(*best)) best = entry;
  }
  return best;
}

int gid_index_from_environment() {
  const char* text = std::getenv("NCCL_IB_GID_INDEX");
  if (text == nullptr) return -1;
  const std::string_view digits(text);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() && index >= 0 ? index : -1;
}

bool can_reach(const PortAddress& from, const PortAddress& to) {
  if (from.layer != to.layer) return false;
  if (from.layer == LinkLayer::kInfiniBand) {
    // Without a global route header, packets reach only the device's own subnet.
    return std::equal(from.gid.begin(), from.gid.begin() + 8, to.gid.begin());
  }
  if (is_ipv4(from.gid.data()) != is_ipv4(to.gid.data())) return false;
  return is_link_local(from.gid.data()) == is_link_local(to.gid.data());
}

std::vector<Path> pair_devices(std::span<const std::optional<PortAddress>> ours,
                               std::span<const std::optional<PortAddress>> theirs) {
  struct Candidate {
    int common;
    int apart;
    Path path;
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      if (!ours[i] || !theirs[k] || !can_reach(*ours[i], *theirs[k])) continue;
      candidates.push_back({common_bits(*ours[i], *theirs[k]),
                            std::abs(static_cast<int>(i) - static_cast<int>(k)),
                            {static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(k)}});
    }
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    const auto order = [](const Candidate& c) {
      return std::tuple(-c.common, c.apart, c.path.ours, c.path.theirs);
    };
    return order(a) < order(b);
  });
  std::vector<int> used_ours(ours.size());
  std::vector<int> used_theirs(theirs.size());
  std::vector<Path> paths;
  // First each device once; then the remaining devices share devices of the other side.
  for (const bool share : {false, true}) {
    for (const Candidate& candidate : candidates) {
      int& our_uses = used_ours[candidate.path.ours];
      int& their_uses = used_theirs[candidate.path.theirs];
      if (share ? our_uses > 0 && their_uses > 0 : our_uses > 0 || their_uses > 0) continue;
      ++our_uses;
      ++their_uses;
      paths.push_back(candidate.path);
    }
  }
  std::ranges::sort(paths, {}, [](const Path& path) { return std::tuple(path.ours, path.theirs); });
  return paths;
}

}  // namespace mc::transport::rdma
