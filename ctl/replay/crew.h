// SPDX-License-Identifier: Apache-2.0
//
// The workers of a replay: processes if there is an agent, threads of one client if the pool is
//   embedded. A crew starts all workers together, follows the progress and collects the results.
// Threads: the main thread. With processes, the caller must not have opened a client or started a
//   thread.
// Owns: the processes, threads, pipes and the file of the tier; all have ended when run_crew() returns.
// Trusts: the workers to be this program; each may die at any moment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ctl/replay/records.h"
#include "ctl/replay/tier_state.h"
#include "ctl/replay/trace.h"
#include "ctl/replay/worker.h"
#include "mc/status.h"

namespace mc::ctl {

struct CrewPlan {
  WorkerPlan worker;  // workers: the number; run_crew() sets worker and stop
  // Socket paths, assigned to the workers in turn. Empty: the default of libmc.
  std::vector<std::string> agents;
  std::string name_space;
  std::uint64_t timeout_ns = 0;
  bool embedded = false;
  std::string embedded_config;  // "name=value" lines
  std::uint64_t ssd_bytes = 0;  // embedded only: size of the tier, on a file of its own; 0: no tier
  std::string ssd_folder;       // of the file; empty: the directory for temporary files
};

struct CrewResult {
  WorkerResult merged;                           // of the workers that finished
  double seconds = 0;                            // from the common start to the last worker's end
  std::vector<std::string> errors;               // an error for each worker that did not finish
  std::optional<std::uint64_t> resident_blocks;  // embedded only: blocks in the pool at the end
  // Only of a plan with ssd_bytes: at the end of the replay.
  std::optional<TierState> tier;
  std::optional<std::uint64_t> evictions;
};

// Calls on_tick about ten times a second with the sum of all progress and the seconds since the
// start. Errors: no worker could start, or the user interrupted the replay.
Result<CrewResult> run_crew(const Trace& trace, const CrewPlan& plan,
                            const std::function<void(const WorkerTotals&, double)>& on_tick);

}  // namespace mc::ctl
