// SPDX-License-Identifier: Apache-2.0
//
// The scenarios of the kill matrix: the actor's operations around a failpoint. Together
//   the scenarios reach every failpoint.
// Threads: the test's main thread.
#pragma once

#include <string>
#include <vector>

#include "crash/cell.h"

namespace mc::crash {

struct Scenario {
  const char* name;
  void (*run)(Cell& cell);
  bool isolated = false;
  bool on_disk = false;  // the agent has a tier
};

const std::vector<Scenario>& scenarios();
const Scenario& scenario(const std::string& name);

}  // namespace mc::crash
