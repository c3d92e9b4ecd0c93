// SPDX-License-Identifier: Apache-2.0
//
// The addresses of both ends of the way to another host, as this host's routes have it.
// Threads: any. Name resolution blocks.
#pragma once

#include <string>

#include "mc/status.h"

namespace mc {

// IP addresses, IPv6 in brackets.
struct Way {
  std::string own;
  std::string other;
  // The other end is on this host.
  [[nodiscard]] bool ends_here() const { return own == other || other.starts_with("127."); }
};

// host: a name or an IP address without brackets. No packet is sent. Errors: MC_AGENT_UNAVAILABLE (no such name,
// or no route).
Result<Way> way_to(const std::string& host, const std::string& port);

}  // namespace mc
