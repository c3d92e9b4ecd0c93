// SPDX-License-Identifier: Apache-2.0
//
// Tries every relevant interleaving of a scenario by running the scenario again and again: dynamic
//   partial-order reduction (Flanagan and Godefroid, POPL 2005) with sleep sets. Two steps of
//   different processes depend on each other if both touch the same word and one writes, or if a
//   killer meets a step of its victim. After each step the explorer finds the last earlier step on
//   which the next steps depend and which could come later, and branches there.
// Threads: one. Owns: the path. Trusts: a scenario is deterministic for the same choices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/model/machine.h"

namespace mc::model {

struct Options {
  Memory memory = Memory::kTotalStoreOrder;
  std::vector<Mutation> mutations;
  // false: every interleaving without reduction, to test the explorer itself.
  bool reduce = true;
  // At the limit the result is "unknown", which no test accepts as a proof.
  std::uint64_t max_executions = 3000000;
};

struct Verdict {
  bool complete = false;  // all interleavings tried, or a violation found
  std::string violation;  // the broken promise, and the interleaving as a table
  std::uint64_t executions = 0;
  std::uint64_t redundant = 0;  // executions dropped as equal to an earlier one
  std::uint64_t steps = 0;
  double seconds = 0;
};

// build: adds shared memory and threads to a fresh machine; called once for each execution.
Verdict explore(const Options& options, const std::function<void(Machine&)>& build);

}  // namespace mc::model
