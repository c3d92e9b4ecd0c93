// SPDX-License-Identifier: Apache-2.0
//
// What it is: what the owner of a fabric transport may choose.
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
  // As fi_info names them: "efa", "tcp;ofi_rxm", "shm". Empty: the first of kProviders
  // (provider.cc) that this host has.
  std::string provider;
  // By name, as fi_info shows them. Empty: every NIC of the provider; of a provider without NICs
  // the first.
  std::vector<std::string> domains;
  // Of this host, for providers that speak IP; empty: the provider chooses.
  std::string address;
  std::uint32_t registering_threads = 4;  // of memory; 0: the loop waits for it
  // By each domain, with all peers together.
  std::uint64_t max_asked_bytes = kMaxNicAskedBytes;
  // Endpoints of a peer that had nothing to do for so long are closed until they are needed.
  std::uint64_t idle_close_ns = 60'000'000'000;
};

}  // namespace mc::transport::fabric
