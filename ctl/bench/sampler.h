// SPDX-License-Identifier: Apache-2.0
//
// What it is: the time of an operation beside the time of its limit, measured in interleaved
// rounds, so that both meet the same machine. p50: the median over groups of operations that share
// a pair of clock reads; p99: over operations timed one by one; both the median of the rounds.
// Threads: one. Owns nothing but the samples. Trusts: its subjects to do the work they are asked
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mc/mc.h"

namespace mc::ctl {

struct Subject {
  // Not timed: makes ready what run() needs. May be empty.
  std::function<void(std::uint64_t first, std::uint64_t count)> prepare;
  // Timed: the operations first, first + 1, ... of an endless sequence.
  std::function<mc_status(std::uint64_t first, std::uint64_t count)> run;
  // Around its part of a round. May be empty.
  std::function<void()> begin_round = {};
  std::function<void()> end_round = {};
};

struct SamplePlan {
  unsigned rounds = 5;
  double seconds = 2;  // of all rounds and subjects together
  std::uint64_t group = 64;
  std::uint64_t min_samples = 3;  // per round, subject and kind, however long they take
};

struct Sample {
  double p50_ns = 0;
  double p99_ns = 0;
};

struct SampleRun {
  mc_status status = MC_OK;     // the first failure ends the run
  std::vector<Sample> samples;  // one for each subject
};

SampleRun measure(const std::vector<Subject>& subjects, const SamplePlan& plan);

// 0 when empty. Reorders the values.
double quantile(std::vector<double>& values, double fraction);

}  // namespace mc::ctl
