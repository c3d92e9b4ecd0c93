// SPDX-License-Identifier: Apache-2.0
//
// What it is: one inference engine of a replay: looks its requests' block chains up in the pool,
// checks every byte it hits, and puts what was missing. Threads: a worker is one thread; several
// may share a client. Owns: its buffers. Trusts: no byte of the pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ctl/replay/records.h"
#include "ctl/replay/trace.h"
#include "mc/status.h"

namespace mc::ctl {

struct WorkerPlan {
  unsigned worker = 0;  // takes the requests worker, worker + workers, ...
  unsigned workers = 1;
  std::size_t block_bytes = 0;
  bool copy = false;         // get by copy instead of by view
  double speed_up = 0;       // 0: as fast as possible; else timestamps are divided by it
  std::size_t hit_bins = 1;  // hits are also counted in this many bins over the trace
  std::string key_name;      // goes into every key
  const std::atomic<bool>* stop = nullptr;  // null, or set to end the worker early
};

// Replays the worker's share, from start_ns on the host's steady clock, and writes progress to
// progress_fd. An error means that the client or the pool is of no use any more; a block that could
// not be got or put is counted instead. REQUIRES: block_bytes >= 1, worker < workers.
Result<WorkerResult> replay_share(mc_client* client, const Trace& trace, const WorkerPlan& plan,
                                  std::uint64_t start_ns, int progress_fd);

}  // namespace mc::ctl
