// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "ctl/bench/cases.h"

namespace mc::ctl {
namespace {

constexpr int kAsleepAfterMs = 25;  // longer than an agent spins before sleeping
constexpr std::size_t kCopyAloneFrom = kMiB;

// Puts of new keys, one after the other, and copies of the same bytes without a pool.
class PutSubjects {
 public:
  PutSubjects(BenchRig& rig, std::size_t size)
      : rig_(rig), size_(size), seed_(random_seed()), value_(size, 0x5a), keys_(kGroup) {}

  Subject put() {
    return {[this](std::uint64_t first, std::uint64_t count) { make_keys(first, count); },
            [this](std::uint64_t, std::uint64_t count) {
              mc_status status = MC_OK;
              for (std::uint64_t i = 0; i < count && status == MC_OK; ++i) {
                status = mc_put(rig_.client, keys_[i].slice(), {value_.data(), size_}, nullptr);
              }
              return status;
            }};
  }
  Subject ping_and_copy() {
    return {{},
            [this](std::uint64_t first, std::uint64_t count) {
              for (std::uint64_t i = 0; i < count; ++i) {
                rig_.ping->spin_ping();
                copy(first + i);
              }
              return MC_OK;
            },
            [this] { rig_.ping->begin_spin(); },
            [this] { rig_.ping->end_spin(); }};
  }
  Subject event_and_copy() {
    return {{}, [this](std::uint64_t first, std::uint64_t count) {
              for (std::uint64_t i = 0; i < count; ++i) {
                rig_.ping->event_ping();
                copy(first + i);
              }
              return MC_OK;
            }};
  }
  Subject copy_alone() {
    return {{}, [this](std::uint64_t first, std::uint64_t count) {
              for (std::uint64_t i = 0; i < count; ++i) copy(first + i);
              return MC_OK;
            }};
  }

 private:
  void make_keys(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) keys_[i] = bench_key(seed_, first + i);
  }
  void copy(std::uint64_t number) {
    unsigned char* to = rig_.region->block(mix_bits(seed_ + number), size_);
    std::memcpy(to, value_.data(), size_);
    asm volatile("" : : "r"(to) : "memory");
  }

  BenchRig& rig_;
  std::size_t size_;
  std::uint64_t seed_;
  std::vector<unsigned char> value_;
  std::vector<BenchKey> keys_;
};

CaseResult put(BenchRig& rig, std::size_t size) {
  rig.dataset.reset();
  PutSubjects subjects(rig, size);
  std::vector<Subject> measured{subjects.put(), subjects.ping_and_copy()};
  if (size >= kCopyAloneFrom) measured.push_back(subjects.copy_alone());
  SamplePlan plan = rig.plan.sample;
  plan.group = std::clamp<std::uint64_t>(kGroupBytes / size, 1, kGroup);
  const SampleRun run = measure(measured, plan);
  CaseResult result = case_named("put", size);
  result.limit = "pingpong+memcpy";
  set_samples(result, run, static_cast<double>(size));
  if (run.samples.size() > 2) result.copy_p50_ns = run.samples[2].p50_ns;
  return result;
}

CaseResult put_asleep(BenchRig& rig, std::size_t size) {
  rig.dataset.reset();
  PutSubjects subjects(rig, size);
  Subject ours = subjects.put();
  Subject limit = subjects.event_and_copy();
  const auto fall_asleep = [] { poll(nullptr, 0, kAsleepAfterMs); };
  ours.prepare = [make = ours.prepare, fall_asleep](std::uint64_t first, std::uint64_t count) {
    make(first, count);
    fall_asleep();
  };
  limit.prepare = [fall_asleep](std::uint64_t, std::uint64_t) { fall_asleep(); };
  SamplePlan plan = rig.plan.sample;
  plan.group = 1;
  CaseResult result = case_named("put_asleep", size);
  result.limit = "eventfd+memcpy";
  set_samples(result, measure({ours, limit}, plan), static_cast<double>(size));
  return result;
}

CaseResult put_batch(BenchRig& rig, std::size_t size) { return run_put_batch(rig, size, 1); }

// Gives the same order to a single client or to both at once. Adds the rates and averages the
// times.
PutReport put_together(BenchRig& rig, const PutOrder& order, unsigned clients) {
  if (clients == 1) return put_for_a_while(rig.client, *rig.region, order);
  PutReport theirs;
  PutReport mine;
  if (rig.second != nullptr) {
    if (!rig.second->begin(order)) return {.status = MC_INTERNAL};
    mine = put_for_a_while(rig.client, *rig.region, order);
    theirs = rig.second->finish();
  } else {
    std::thread second([&] { theirs = put_for_a_while(rig.client, *rig.region, order); });
    mine = put_for_a_while(rig.client, *rig.region, order);
    second.join();
  }
  if (mine.status != MC_OK || theirs.status != MC_OK) {
    return {.status = mine.status != MC_OK ? mine.status : theirs.status};
  }
  return {.status = MC_OK,
          .p50_ns = (mine.p50_ns + theirs.p50_ns) / 2,
          .p99_ns = std::max(mine.p99_ns, theirs.p99_ns),
          .bytes_per_s = mine.bytes_per_s + theirs.bytes_per_s};
}

struct Medians {
  std::vector<double> p50s;
  std::vector<double> p99s;
  std::vector<double> rates;
  void add(const PutReport& report) {
    p50s.push_back(report.p50_ns);
    p99s.push_back(report.p99_ns);
    rates.push_back(report.bytes_per_s);
  }
  Sample sample() { return {quantile(p50s, 0.5), quantile(p99s, 0.5)}; }
  double rate() { return quantile(rates, 0.5); }
};

}  // namespace

CaseResult run_put_batch(BenchRig& rig, std::size_t size, unsigned clients) {
  rig.dataset.reset();
  CaseResult result = case_named("put_batch", size);
  result.batch = kBatch;
  result.clients = clients;
  result.limit = "memcpy";
  const SamplePlan& plan = rig.plan.sample;
  PutOrder order{.object_bytes = size, .batch = kBatch, .region_bytes = rig.region->size()};
  Medians ours;
  Medians limit;
  // The first order has a duration of 0: the second client only opens and touches memory.
  for (unsigned round = 0; round <= plan.rounds; ++round) {
    order.seconds = round == 0 ? 0 : plan.seconds / plan.rounds / 2;
    for (const bool copy_only : {false, true}) {
      order.copy_only = copy_only;
      const PutReport report = put_together(rig, order, clients);
      if (report.status != MC_OK) {
        result.error = std::string(mc_status_name(report.status)) + ": " + mc_last_error();
        return result;
      }
      if (round > 0) (copy_only ? limit : ours).add(report);
    }
  }
  result.ours = ours.sample();
  result.of_limit = limit.sample();
  result.bytes_per_s = ours.rate();
  result.limit_bytes_per_s = limit.rate();
  return result;
}

std::vector<BenchCase> put_cases() {
  return {{"put", "a new object, until it is visible", {4 * kKiB, kMiB}, put},
          {"put_asleep", "the same when the agent has gone to sleep", {4 * kKiB}, put_asleep},
          {"put_batch",
           "32 new objects, by one client and by two at once",
           {4 * kKiB, kMiB},
           put_batch}};
}

}  // namespace mc::ctl
