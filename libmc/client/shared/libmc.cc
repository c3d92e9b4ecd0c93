// SPDX-License-Identifier: Apache-2.0
//
// What makes libmc.so whole: the client, and the agent core behind its address "embedded".
#include "agent/embedded_connector.h"

namespace {
const bool registered = [] {
  mc::agent::register_embedded_agent();
  return true;
}();
}  // namespace
