// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/sampler.h"

#include <algorithm>
#include <cmath>

#include "libmc/base/clock.h"

namespace mc::ctl {
namespace {

// The part of the time of a round for groups; the rest measures single operations.
constexpr double kGroupShare = 0.7;

struct Rounds {
  std::vector<double> p50s;
  std::vector<double> p99s;
};

// Measures batches of `count` operations for the given time; nanoseconds per operation.
mc_status time_operations(const Subject& subject, std::uint64_t count, double seconds,
                          std::uint64_t min_samples, std::uint64_t& position,
                          std::vector<double>& samples) {
  samples.clear();
  const std::uint64_t end_ns = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  while (samples.size() < min_samples || now_ns() < end_ns) {
    if (subject.prepare) subject.prepare(position, count);
    const std::uint64_t begin_ns = now_ns();
    const mc_status status = subject.run(position, count);
    const std::uint64_t took_ns = now_ns() - begin_ns;
    if (status != MC_OK) return status;
    position += count;
    samples.push_back(static_cast<double>(took_ns) / static_cast<double>(count));
  }
  return MC_OK;
}

mc_status run_samples(const Subject& subject, const SamplePlan& plan, double seconds,
                      std::uint64_t& position, Rounds& rounds) {
  std::vector<double> samples;
  mc_status status = time_operations(subject, plan.group, 0, 1, position, samples);  // warms up
  if (status != MC_OK) return status;
  const bool one_by_one = plan.group == 1;
  status = time_operations(subject, plan.group, one_by_one ? seconds : seconds * kGroupShare,
                           plan.min_samples, position, samples);
  if (status != MC_OK) return status;
  rounds.p50s.push_back(quantile(samples, 0.5));
  if (!one_by_one) {
    status = time_operations(subject, 1, seconds * (1 - kGroupShare), plan.min_samples, position,
                             samples);
  }
  rounds.p99s.push_back(quantile(samples, 0.99));
  return status;
}

mc_status run_round(const Subject& subject, const SamplePlan& plan, double seconds,
                    std::uint64_t& position, Rounds& rounds) {
  if (subject.begin_round) subject.begin_round();
  const mc_status status = run_samples(subject, plan, seconds, position, rounds);
  if (subject.end_round) subject.end_round();
  return status;
}

}  // namespace

double quantile(std::vector<double>& values, double fraction) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::llround(last * fraction));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

SampleRun measure(const std::vector<Subject>& subjects, const SamplePlan& plan) {
  SampleRun run;
  std::vector<Rounds> rounds(subjects.size());
  std::vector<std::uint64_t> positions(subjects.size());
  const double seconds = plan.seconds / plan.rounds / static_cast<double>(subjects.size());
  for (unsigned round = 0; round < plan.rounds; ++round) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      run.status = run_round(subjects[i], plan, seconds, positions[i], rounds[i]);
      if (run.status != MC_OK) return run;
    }
  }
  for (Rounds& of_subject : rounds) {
    run.samples.push_back({quantile(of_subject.p50s, 0.5), quantile(of_subject.p99s, 0.5)});
  }
  return run;
}

}  // namespace mc::ctl
