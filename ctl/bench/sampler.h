// SPDX-License-Identifier: Apache-2.0
//
// The time of an operation beside the time of its limit. Rounds of both alternate, so
//   that both run under the same conditions. p50 is the median over groups of operations that share
//   a pair of clock reads; p99 is over operations measured alone. Both are the median of the
//   rounds.
// Threads: a single thread.
// Owns: only the samples.
// Trusts: its subjects to do the requested work.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mc/mc.h"

namespace mc::ctl {

struct Subject {
  // Not measured: prepares the operations of run(). May be empty.
  std::function<void(std::uint64_t first, std::uint64_t count)> prepare;
  // Measured: the operations first, first + 1, ... of an endless sequence.
  std::function<mc_status(std::uint64_t first, std::uint64_t count)> run;
  // Before and after the subject's part of a round. May be empty.
  std::function<void()> begin_round = {};
  std::function<void()> end_round = {};
};

struct SamplePlan {
  unsigned rounds = 5;
  double seconds = 2;  // of all rounds and subjects together
  std::uint64_t group = 64;
  std::uint64_t min_samples = 3;  // per round, subject and kind, even if the time is over
};

struct Sample {
  double p50_ns = 0;
  double p99_ns = 0;
};

struct SampleRun {
  mc_status status = MC_OK;     // the first failure ends the run
  std::vector<Sample> samples;  // a sample for each subject
};

SampleRun measure(const std::vector<Subject>& subjects, const SamplePlan& plan);

// Returns 0 if there are no values. Reorders the values.
double quantile(std::vector<double>& values, double fraction);

}  // namespace mc::ctl
