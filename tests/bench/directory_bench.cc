// SPDX-License-Identifier: Apache-2.0
//
// Keys per second that a core publishes and locates, in batches of 128, at a constant number of
// entries; bytes per entry; and the limit of the machine: reads of random cache lines of an equally
// large table, in the same rhythm.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "metadata/directory/directory.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kBatch = 128;
constexpr NodeId kNodes = 100;
constexpr std::int64_t kFew = 1 << 20;  // whole batches
constexpr std::int64_t kMany = 10 << 20;

// Spread like a keyed hash and computed from the number, so that no table of keys is needed.
KeyHash key_of(std::uint64_t number) {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  return {mix(number * 2 + 1), mix(number * 2 + 0x9e3779b97f4a7c15u)};
}

// Time of this thread, because other programs share the machine.
double thread_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

class Filled {
 public:
  explicit Filled(std::uint64_t entries) : directory_(DirectoryOptions{}) {
    for (NodeId node = 1; node <= kNodes; ++node) {
      if (!directory_.join(node, 1).ok()) std::abort();
      directory_.begin_report({node, 1, ++sequence_[node]});
    }
    for (std::uint64_t first = 0; first < entries; first += kBatch) {
      publish(first, std::min<std::uint64_t>(kBatch, entries - first));
    }
    for (NodeId node = 1; node <= kNodes; ++node) {
      directory_.end_report({node, 1, ++sequence_[node]});
    }
  }

  // Keys of these numbers; the first number determines the holding node.
  void publish(std::uint64_t first, std::size_t count,
               PublishItem::What what = PublishItem::What::kHolds) {
    const NodeId node = 1 + first / kBatch % kNodes;
    for (std::size_t i = 0; i < count; ++i) {
      items_[i] = {key_of(first + i), 7, 4096, Attributes{}, what};
    }
    const double start_us = thread_us();
    directory_.apply({{node, 1, ++sequence_[node]}, 0, std::span(items_).first(count)}, answer_);
    longest_batch_us_ = std::max(longest_batch_us_, thread_us() - start_us);
    for (const Verdict verdict : answer_.verdicts) refused_ += verdict != Verdict::kAccepted;
    if (answer_.stream != StreamAnswer::kApplied) ++refused_;
  }

  void replace_oldest(std::uint64_t entries) {
    publish(oldest_ + entries, kBatch);
    publish(oldest_, kBatch, PublishItem::What::kDropped);
    oldest_ += kBatch;
  }

  [[nodiscard]] std::uint64_t oldest() const { return oldest_; }
  Directory& directory() { return directory_; }
  [[nodiscard]] double longest_batch_us() const { return longest_batch_us_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  Directory directory_;
  std::array<std::uint64_t, kNodes + 1> sequence_{};
  std::array<PublishItem, kBatch> items_;
  BatchAnswer answer_;
  std::uint64_t refused_ = 0;
  double longest_batch_us_ = 0;
  std::uint64_t oldest_ = 0;  // number of the first key that still exists
};

// One directory at a time, because memory suffices for a single directory.
Filled& filled(std::uint64_t entries) {
  static std::unique_ptr<Filled> now;
  static std::uint64_t now_entries = 0;
  if (now == nullptr || now_entries != entries) {
    now.reset();
    now = std::make_unique<Filled>(entries);
    now_entries = entries;
  }
  return *now;
}

void report(benchmark::State& state, Filled& world) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
  state.counters["B/entry"] =
      static_cast<double>(world.directory().memory_bytes()) /
      static_cast<double>(std::max<std::uint64_t>(1, world.directory().entry_count()));
  if (world.refused() != 0) state.SkipWithError("a key was refused");
}

void Locate(benchmark::State& state) {
  const auto entries = static_cast<std::uint64_t>(state.range(0));
  Filled& world = filled(entries);
  std::mt19937_64 random(1);
  std::array<KeyHash, kBatch> keys;
  LocateAnswer answer;
  std::uint64_t found = 0;
  for (auto _ : state) {
    for (KeyHash& key : keys) key = key_of(world.oldest() + random() % entries);
    world.directory().locate(keys, answer);
    found += answer.holders.size();
  }
  if (found != static_cast<std::uint64_t>(state.iterations()) * kBatch) {
    state.SkipWithError("a key was not found");
  }
  report(state, world);
}
BENCHMARK(Locate)->Arg(kFew)->Arg(kMany);

void LocateMiss(benchmark::State& state) {
  Filled& world = filled(static_cast<std::uint64_t>(state.range(0)));
  std::mt19937_64 random(1);
  std::array<KeyHash, kBatch> keys;
  LocateAnswer answer;
  for (auto _ : state) {
    for (KeyHash& key : keys) key = {random(), random()};
    world.directory().locate(keys, answer);
    benchmark::DoNotOptimize(answer.keys.data());
  }
  report(state, world);
}
BENCHMARK(LocateMiss)->Arg(kFew)->Arg(kMany);

// Steady state: each new batch replaces the oldest batch.
void PublishAndDrop(benchmark::State& state) {
  const auto entries = static_cast<std::uint64_t>(state.range(0));
  Filled& world = filled(entries);
  for (auto _ : state) world.replace_oldest(entries);
  report(state, world);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(2 * kBatch));
}
BENCHMARK(PublishAndDrop)->Arg(kFew)->Arg(kMany);

std::uint64_t resident_bytes() {
  std::uint64_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> pages >> pages;
  return pages * 4096;
}

// Publishes into an empty directory, growth of the table included: the cost of a report for a new
// master. Also measures the longest batch and the growth of the process.
void PublishFromEmpty(benchmark::State& state) {
  filled(0);
  double longest_us = 0;
  for (auto _ : state) {
    const std::uint64_t before = resident_bytes();
    Filled world(static_cast<std::uint64_t>(state.range(0)));
    state.PauseTiming();
    longest_us = std::max(longest_us, world.longest_batch_us());
    report(state, world);
    state.counters["RSS/entry"] =
        static_cast<double>(resident_bytes() - before) / static_cast<double>(state.range(0));
    state.ResumeTiming();
  }
  state.counters["longest_batch_us"] = longest_us;
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(PublishFromEmpty)->Arg(kFew)->Arg(kMany)->Unit(benchmark::kMillisecond);

// The limit: a locate reads two dependent cache lines. This function reads pairs of lines at 128
// random places together and prefetches each line.
void MachineRandomLines(benchmark::State& state) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(state.range(0)) * 48;
  const PageArray memory = PageArray::reserve(bytes);
  auto* words = reinterpret_cast<std::uint64_t*>(memory.data());
  const std::uint64_t lines = bytes / 64;
  for (std::uint64_t i = 0; i < lines; ++i) words[i * 8] = i;
  std::mt19937_64 random(1);
  std::array<std::uint64_t, kBatch> at{};
  std::uint64_t sum = 0;
  for (auto _ : state) {
    for (std::uint64_t& line : at) {
      line = random() % (lines - 8);
      __builtin_prefetch(words + line * 8);
    }
    for (const std::uint64_t line : at) {
      const std::uint64_t second = line + 1 + words[line * 8] % 7;
      __builtin_prefetch(words + second * 8);
    }
    for (const std::uint64_t line : at) {
      sum += words[(line + 1 + words[line * 8] % 7) * 8];
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}
BENCHMARK(MachineRandomLines)->Arg(kFew)->Arg(kMany);

}  // namespace
}  // namespace mc::metadata

BENCHMARK_MAIN();
