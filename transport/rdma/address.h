// SPDX-License-Identifier: Apache-2.0
//
// The address of a device on its network, and the devices of two hosts that make a
//   rail. Pure.
//
//   A RoCE device has several GIDs, a GID for each address. The transport prefers version 2
//   of the IPv4 address, since networks route it; then a global IPv6 address, then a link-local
//   address. Version 1 is not used.
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

// wanted_index: -1 for the choice above.
std::optional<GidEntry> choose_gid(std::span<const GidEntry> entries, int wanted_index);
// NCCL_IB_GID_INDEX, which sites set for all programs that use RoCE; -1 if unset.
int gid_index_from_environment();

// Whether packets can arrive: both addresses are of the same kind, on the same kind of network.
bool can_reach(const PortAddress& from, const PortAddress& to);

// A rail between two hosts: indices of a local and a remote device. Devices with the longest common
// address prefix (the same subnet) are paired first. Each device that reaches a device
// of the other host is in a pair.
struct Path {
  std::uint8_t ours = 0;
  std::uint8_t theirs = 0;

  bool operator==(const Path&) const = default;
};
std::vector<Path> pair_devices(std::span<const std::optional<PortAddress>> ours,
                               std::span<const std::optional<PortAddress>> theirs);

}  // namespace mc::transport::rdma
