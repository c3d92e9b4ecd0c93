// SPDX-License-Identifier: Apache-2.0
//
// Opens the one-sided transport that goes beside TCP, if host and options permit. RDMA comes before
//   libfabric.
// Threads: any, before the transport is driven.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/one_sided/one_sided.h"
#include "transport/topology/near_devices.h"

namespace mc::transport::choice {

inline constexpr const char* kEfaProvider = "efa";

struct DirectOptions {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  std::string transports = "auto";        // "auto" | "tcp" | "rdma" | "fabric"
  std::vector<std::string> rdma_devices;  // by name; empty: all
  std::uint32_t rdma_ack_timeout = 14;    // exponent N of InfiniBand's timeout: 4.096 us * 2^N
  std::string fabric_provider = kEfaProvider;
  std::string address;               // that peers dial
  bool encrypted = false;            // TCP's lanes use TLS: nothing may go in the clear
  PlaceOf place_of = place_of_page;  // of local memory: devices near to it are used first
};

struct DirectWay {
  std::unique_ptr<OneSidedTransport> transport;  // null: TCP alone
  std::string why_not;                           // empty: the options want none
};

// Errors: the named transport cannot be opened; the text says why, with the remedy.
Result<DirectWay> open_direct_way(const DirectOptions& options, Dialer& dialer);

}  // namespace mc::transport::choice
