// SPDX-License-Identifier: Apache-2.0
//
// All results of a replay, for the table, the line of JSON and the report.
// Threads: a value.
// Owns: its data.
// Trusts: its maker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctl/replay/records.h"
#include "ctl/replay/tier_state.h"
#include "ctl/replay/trace.h"

namespace mc::ctl {

using Curve = std::vector<std::pair<double, double>>;  // x, y

struct ReplaySummary {
  std::string command_line;
  std::string trace;
  std::string policy;
  unsigned workers = 1;
  bool embedded = false;
  unsigned hosts = 0;  // of a cluster that was created for the replay; 0: no such cluster
  std::uint64_t block_bytes = 0;
  std::uint64_t distinct_blocks = 0;
  std::uint64_t capacity_blocks = 0;  // as requested; 0: unlimited
  std::uint64_t pool_bytes = 0;
  std::uint64_t dram_blocks = 0;       // that the pool holds
  std::uint64_t ssd_bytes = 0;         // of the tier; 0: none
  std::uint64_t reference_blocks = 0;  // cache size of the reference policies: DRAM and SSD
  double seconds = 0;
  WorkerResult result;
  std::optional<TierState> tier;  // counters of the replay
  std::optional<std::uint64_t> evictions;
  bool evictions_exact = true;   // false: an upper bound
  std::uint64_t trace_refs = 0;  // block references of the reference policies
  std::uint64_t lru_hits = 0;
  std::uint64_t optimum_hits = 0;

  Curve hit_ratio;   // requests, share of the block references so far
  Curve dram_ratio;  // the same, of the hits that no disk had to serve; only with a tier
  Curve lru_ratio;
  Curve optimum_ratio;
  Curve occupancy;  // seconds, objects
  Curve get_rate;   // seconds, bytes a second
  Curve put_rate;
  bool occupancy_is_estimate = false;  // an embedded pool does not report its objects

  bool unlimited() const { return reference_blocks >= distinct_blocks; }
  std::uint64_t dram_hits() const {
    const std::uint64_t hits = result.totals.hit_refs;
    return hits - std::min(hits, result.totals.fetched_refs);
  }
  double ratio(std::uint64_t hits) const;            // of the block references replayed
  double optimum_share() const;                      // prefix hits, of those of the optimum
  double reference_ratio(std::uint64_t hits) const;  // of the block references of the whole trace
};

// Adds the curves that follow from the bins of the workers.
void add_worker_curves(ReplaySummary& summary, std::size_t request_count);
// Adds the curves of the reference policies at the same points of the trace. Each point is a
// separate run over the requests up to that point, so the optimum is the best possible result at
// that point.
void add_reference_curves(ReplaySummary& summary, const Trace& trace);

// The label and the value of each line, for the table and the report.
std::vector<std::pair<std::string, std::string>> summary_rows(const ReplaySummary& summary);
std::vector<std::vector<std::string>> latency_rows(const ReplaySummary& summary);
std::vector<std::string> latency_header();
std::string summary_text(const ReplaySummary& summary);
std::string summary_json(const ReplaySummary& summary);  // one line

// The replay as one HTML page without scripts, fonts or network access. All text is escaped.
std::string report_html(const ReplaySummary& summary);

std::string format_percent(double ratio);
std::string format_amplification(const TierState& tier);

// Two reference policies. Both functions return prefix hits: block references served while every
// earlier block of the same request was also a hit. capacity_blocks: the size of the cache.

// Least recently used; within a request, children age before their parents.
[[nodiscard]] std::uint64_t lru_prefix_hits(const Trace& trace, std::size_t capacity_blocks);

// Belady's MIN with bypass: evicts the block whose next use is farthest, which may be the block
// just referenced. L. A. Belady, "A study of replacement algorithms for a virtual-storage
// computer", IBM Systems Journal 5(2), 1966.
[[nodiscard]] std::uint64_t optimal_prefix_hits(const Trace& trace, std::size_t capacity_blocks);

}  // namespace mc::ctl
