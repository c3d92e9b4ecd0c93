// SPDX-License-Identifier: Apache-2.0
//
// What it is: where a device is on its network, and which devices of two hosts make a rail. Pure.
//
//   A RoCE device has several GIDs, one for each of its addresses. Version 2 of the IPv4 address
//   is wanted first, since that is what networks route; then that of a global IPv6 address, then
//   a link-local one. Version 1 is not used.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/rdma/verbs.h"

namespace mc::transport::rdma {

using Gid = std::array<std::uint8_t, 16>;

enum class LinkLayer : std::uint8_t { kInfiniBand = 1, kEthernet = 2 };

struct PortAddress {
  Gid gid{};
  LinkLayer layer = LinkLayer::kEthernet;
  std::uint8_t mtu = IBV_MTU_1024;  // ibv_mtu
  std::uint16_t lid = 0;

  bool operator==(const PortAddress&) const = default;
};

// wanted_index: -1: chosen as above.
std::optional<GidEntry> choose_gid(std::span<const GidEntry> entries, int wanted_index);
// NCCL_IB_GID_INDEX, which sites set for all that speaks RoCE; -1 without it.
int gid_index_from_environment();

// Whether packets from one to the other can arrive: the same kind of network and of address.
bool can_reach(const PortAddress& from, const PortAddress& to);

// Rails between two hosts: pairs of indices into ours and theirs. Devices with the longest common
// beginning of their addresses, the same subnet, come together first; each device of either host
// that reaches one of the other's is in a pair.
struct Path {
  std::uint8_t ours = 0;
  std::uint8_t theirs = 0;

  bool operator==(const Path&) const = default;
};
std::vector<Path> pair_devices(std::span<const std::optional<PortAddress>> ours,
                               std::span<const std::optional<PortAddress>> theirs);

}  // namespace mc::transport::rdma
