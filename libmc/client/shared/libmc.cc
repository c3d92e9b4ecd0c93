// SPDX-License-Identifier: Apache-2.0
//
// Links the client and the agent core (behind the address "embedded") into libmc.so.
#include "agent/embedded.h"

namespace {
const bool registered = [] {
  mc::agent::register_embedded_agent();
  return true;
}();
}  // namespace
