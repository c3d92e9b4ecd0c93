// SPDX-License-Identifier: Apache-2.0
//
// What it is: all that a replay found out, as the table, the line of JSON and the report show it.
// Threads: a value. Owns its data. Trusts: its maker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctl/replay/records.h"
#include "ctl/replay/trace.h"

namespace mc::ctl {

using Curve = std::vector<std::pair<double, double>>;  // x, y

struct ReplaySummary {
  std::string command_line;
  std::string trace;
  std::string policy;
  unsigned workers = 1;
  bool embedded = false;
  unsigned hosts = 0;  // of a cluster that was made for the replay; 0: none
  std::uint64_t block_bytes = 0;
  std::uint64_t distinct_blocks = 0;
  std::uint64_t capacity_blocks = 0;  // as asked for; 0: unlimited
  std::uint64_t pool_bytes = 0;
  std::uint64_t reference_blocks = 0;  // the size of the cache of LRU and of the optimum
  double seconds = 0;
  WorkerResult result;
  std::optional<std::uint64_t> evictions;
  bool evictions_exact = true;   // else an upper bound
  std::uint64_t trace_refs = 0;  // block references the references were computed over
  std::uint64_t lru_hits = 0;
  std::uint64_t optimum_hits = 0;

  Curve hit_ratio;  // requests, share of the block references so far
  Curve lru_ratio;
  Curve optimum_ratio;
  Curve occupancy;  // seconds, objects
  Curve get_rate;   // seconds, bytes a second
  Curve put_rate;
  bool occupancy_is_estimate = false;  // an embedded pool does not tell

  bool unlimited() const { return reference_blocks >= distinct_blocks; }
  double ratio(std::uint64_t hits) const;            // of the block references replayed
  double reference_ratio(std::uint64_t hits) const;  // of those of the whole trace
};

// The curves that can be drawn from the workers' bins.
void add_worker_curves(ReplaySummary& summary, std::size_t request_count);
// The references at the same points of the trace. Each point is a run of its own over the requests
// so far, so the optimum there is the best that could have been reached by then.
void add_reference_curves(ReplaySummary& summary, const Trace& trace);

// Label and value of each line, for the table and the report.
std::vector<std::pair<std::string, std::string>> summary_rows(const ReplaySummary& summary);
std::vector<std::vector<std::string>> latency_rows(const ReplaySummary& summary);
std::vector<std::string> latency_header();
std::string summary_text(const ReplaySummary& summary);
std::string summary_json(const ReplaySummary& summary);  // one line

std::string format_percent(double ratio);

}  // namespace mc::ctl
