// SPDX-License-Identifier: Apache-2.0
//
// What it is: the short stories of the kill matrix: what the actor does when a process meets a
//   failpoint. Together they reach every failpoint there is.
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
};

const std::vector<Scenario>& scenarios();
const Scenario& scenario(const std::string& name);

}  // namespace mc::crash
