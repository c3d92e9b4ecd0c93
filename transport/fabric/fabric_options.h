// SPDX-License-Identifier: Apache-2.0
//
// The options of a fabric transport.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/limits.h"
#include "transport/link.h"

namespace mc::transport::fabric {

struct FabricOptions {
  NodeId node = 0;
  std::uint64_t incarnation = 0;
  // As fi_info names providers: "efa", "tcp;ofi_rxm", "shm". Empty: the first of kProviders
  // (provider.cc) that this host has.
  std::string provider;
  // Names as fi_info shows them. Empty: every NIC of the provider; the first domain of a provider
  // without NICs.
  std::vector<std::string> domains;
  // Address of this host, for providers that use IP; empty: the provider chooses.
  std::string address;
  std::uint32_t registering_threads = 4;  // of memory; 0: the loop registers
  // Limit of bytes that each domain asks of all peers together.
  std::uint64_t max_asked_bytes = kMaxNicAskedBytes;
  // The endpoints of a peer without operations for so long are closed until the next operation.
  std::uint64_t idle_close_ns = 600'000'000'000;
};

}  // namespace mc::transport::fabric
