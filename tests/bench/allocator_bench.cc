// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds for a free and an allocation of a pool in steady state: a random allocation of the
// N live allocations is freed, and an allocation of a new size is made.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "agent/pool/extents/extent_allocator.h"
#include "agent/pool/index/key_heap.h"

namespace mc::agent {
namespace {

constexpr std::uint32_t kDice = 1 << 20;

// The random sizes are drawn before the measurement.
std::vector<std::uint32_t> random_below(std::uint32_t bound, std::uint32_t floor) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> numbers(kDice);
  for (auto& number : numbers) number = floor + static_cast<std::uint32_t>(random() % bound);
  return numbers;
}

void run_extents(benchmark::State& state, const std::vector<std::uint32_t>& sizes) {
  const auto live_count = static_cast<std::uint32_t>(state.range(0));
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < live_count; ++i) total += sizes[i % kDice];
  ExtentAllocator allocator;
  if (!allocator.grow(total + total / 8 + 100'000)) return state.SkipWithError("too large");
  std::vector<BlockId> live;
  live.reserve(live_count);
  for (std::uint32_t i = 0; i < live_count; ++i) {
    live.push_back(allocator.allocate(sizes[i % kDice])->node);
  }
  const std::vector<std::uint32_t> victims = random_below(live_count, 0);
  std::uint32_t i = 0;
  std::uint64_t refused = 0;
  for (auto _ : state) {
    BlockId& node = live[victims[i % kDice]];
    allocator.free(node);
    const auto got = allocator.allocate(sizes[i * 7 % kDice]);
    node = got ? got->node : kNoBlock;
    refused += got ? 0 : 1;
    ++i;
  }
  state.counters["refused"] = static_cast<double>(refused);
  state.counters["B/alloc"] = static_cast<double>(allocator.memory_bytes()) / live_count;
}

void ExtentsUniform4KiB(benchmark::State& state) {
  run_extents(state, std::vector<std::uint32_t>(kDice, 4096 / kGranuleBytes));
}
BENCHMARK(ExtentsUniform4KiB)->Arg(1'000)->Arg(1'000'000);

void ExtentsMixed256BTo512KiB(benchmark::State& state) {
  run_extents(state, random_below(2048, 1));
}
BENCHMARK(ExtentsMixed256BTo512KiB)->Arg(1'000)->Arg(1'000'000);

void ExtentsClaimAll(benchmark::State& state) {
  std::vector<GranuleRange> ranges;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(state.range(0)); ++i) {
    ranges.push_back({i * 20, 16});
  }
  for (auto _ : state) {
    ExtentAllocator allocator;
    if (!allocator.grow(ranges.size() * 20)) return state.SkipWithError("too large");
    ExtentAllocator::Claimer claimer(allocator);
    for (const GranuleRange& range : ranges) benchmark::DoNotOptimize(claimer.claim(range));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ExtentsClaimAll)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void run_keys(benchmark::State& state, const std::vector<std::uint32_t>& sizes) {
  const auto live_count = static_cast<std::uint32_t>(state.range(0));
  KeyHeap heap([](std::uint64_t, std::uint64_t) { return true; });
  struct Key {
    std::uint32_t ref;
    std::uint32_t bytes;
  };
  std::vector<Key> live;
  live.reserve(live_count);
  for (std::uint32_t i = 0; i < live_count; ++i) {
    live.push_back({*heap.allocate(sizes[i % kDice]), sizes[i % kDice]});
  }
  const std::vector<std::uint32_t> victims = random_below(live_count, 0);
  std::uint32_t i = 0;
  for (auto _ : state) {
    Key& key = live[victims[i % kDice]];
    heap.free(key.ref, key.bytes);
    key.bytes = sizes[i * 7 % kDice];
    key.ref = *heap.allocate(key.bytes);
    ++i;
  }
  state.counters["B/key"] = static_cast<double>(heap.memory_bytes()) / live_count;
}

void Keys64B(benchmark::State& state) { run_keys(state, std::vector<std::uint32_t>(kDice, 64)); }
BENCHMARK(Keys64B)->Arg(1'000)->Arg(1'000'000);

void Keys1To200B(benchmark::State& state) { run_keys(state, random_below(200, 1)); }
BENCHMARK(Keys1To200B)->Arg(1'000)->Arg(1'000'000);

}  // namespace
}  // namespace mc::agent

BENCHMARK_MAIN();
