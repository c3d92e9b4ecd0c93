// SPDX-License-Identifier: Apache-2.0
//
// The address at which an engine listens: an IP address and a port.
// Threads: any thread. resolve() may ask the system's resolver and waits for the answer.
// Trusts: nothing. Any text becomes a value or an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mc/status.h"

namespace mc::transfer {

struct Address {
  std::string host;  // an IP address as text
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// "10.0.0.7:7400", "[fd00::7]:7400", "localhost:0", "node7:7400". Errors: MC_INVALID_ARGUMENT.
Result<Address> resolve(std::string_view text);
std::string text_of(const Address& address);
bool is_loopback(const Address& address);
bool is_wildcard(const Address& address);

}  // namespace mc::transfer
