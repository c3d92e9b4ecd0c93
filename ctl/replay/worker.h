// SPDX-License-Identifier: Apache-2.0
//
// One inference engine of a replay. For each request, a worker looks up the block chain in the
//   pool, checks every byte of the hits, and puts the missing blocks.
// Threads: a worker is one thread; several workers may share a client.
// Owns: its buffers.
// Trusts: no byte of the pool.
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
  bool copy = false;    // get by copy instead of by view
  double speed_up = 0;  // 0: as fast as possible; else timestamps are divided by this factor
  // With a tier: a worker gets or puts at most so many bytes at once, and waits before while twice as many are on
  // their way to the disk. 0: no limit, and no wait.
  std::uint64_t at_once_bytes = 0;
  std::size_t hit_bins = 1;  // hits are also counted in this many bins over the trace
  std::string key_name;      // part of every key
  const std::atomic<bool>* stop = nullptr;  // null, or set to end the worker early
};

// Replays the requests of the worker, from start_ns on the steady clock of the host, and writes
// progress to progress_fd. An error means that the client or the pool cannot be used any longer. A
// block that could not be read or stored is only counted. REQUIRES: block_bytes >= 1, worker <
// workers.
Result<WorkerResult> replay_share(mc_client* client, const Trace& trace, const WorkerPlan& plan,
                                  std::uint64_t start_ns, int progress_fd);

}  // namespace mc::ctl
