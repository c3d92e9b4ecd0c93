// SPDX-License-Identifier: Apache-2.0
//
// What it is: tries every interleaving of a scenario that can make a difference, by running it
// again
//   and again: dynamic partial-order reduction (Flanagan and Godefroid, POPL 2005) with sleep sets.
//   Two steps of different processes depend on each other when they touch the same word and one of
//   them writes it, when a heavy fence meets a store on its way into a buffer, and when a killer
//   meets a step of its victim. After each step the explorer looks for the last earlier step that
//   the next ones depend on and that could have come after them; there it branches.
// Threads: one. Owns: the path. Trusts: a scenario does the same when it is given the same choices.
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
  // Without: really every interleaving, to check the checker with.
  bool reduce = true;
  // Reached: the answer is "not known", which no test takes for a proof.
  std::uint64_t max_executions = 3000000;
};

struct Verdict {
  bool complete = false;  // every interleaving was tried, or a violation was found
  std::string violation;  // what was broken, and the interleaving as a table
  std::uint64_t executions = 0;
  std::uint64_t redundant = 0;  // given up, being like one before
  std::uint64_t steps = 0;
  double seconds = 0;
};

// build: adds shared memory and threads to a fresh machine; called once for each execution.
Verdict explore(const Options& options, const std::function<void(Machine&)>& build);

}  // namespace mc::model
