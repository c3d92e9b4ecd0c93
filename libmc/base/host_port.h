// SPDX-License-Identifier: Apache-2.0
//
// Addresses as users write them.
// Threads: any; pure functions.
// Trusts: nothing.
#pragma once

#include <string>

#include "mc/status.h"

namespace mc {

// The text of an option whose port may be missing.
inline constexpr const char* kNoPort = "off";

struct HostPort {
  std::string host;  // a name or an IP address, without brackets
  std::string port;  // 1 to 65535
};

// "host:port" or "[v6 address]:port". Errors: MC_INVALID_ARGUMENT.
Result<HostPort> split_address(const std::string& address);

}  // namespace mc
