// SPDX-License-Identifier: Apache-2.0
//
// Processor cost of a slice on this host: the instructions of the rdma transport for posting a
// slice and for the completion. The devices below the table of verbs do nothing.
//
//   valgrind --tool=callgrind --toggle-collect='*one_round*' build/test/bin/rdma_post_bench
//   callgrind_annotate --inclusive=yes callgrind.out.*
#include <cstdio>
#include <cstdlib>

#include "conformance/transport/memory_arena.h"
#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/verbs_fabric.h"

namespace {

using namespace mc::transport;           // NOLINT: a program's only file
using namespace mc::transport::testing;  // NOLINT

struct Bench {
  Bench() {
    fabric.add({.name = "a0", .subnet = 0, .host = 1});
    fabric.add({.name = "b0", .subnet = 0, .host = 2});
    auto options_a = RdmaPair::options(kNodeA, {"a0"});
    auto options_b = RdmaPair::options(kNodeB, {"b0"});
    options_a.opening_threads = options_b.opening_threads = 0;
    pair = std::make_unique<RdmaPair>(VerbsFabric::verbs(), options_a, options_b);
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    spec.rights = kRemoteRead;
    static_cast<void>(pair->a().register_region(spec).value());
    const RegionId region = pair->b().register_region(spec).value();
    peer = pair->a().connect({kNodeB, 1}).value();
    remote = pair->a().import_region(peer, pair->b().describe(region).value()).value();
  }

  // Reads the bytes by a single operation; returns the number of requests.
  [[gnu::noinline]] std::uint64_t one_round(std::uint64_t bytes) {
    const std::uint64_t before = fabric.requests();
    const Piece piece{memory_arena().data(), bytes, kNoRegion};
    Operation operation;
    operation.peer = peer;
    operation.region = remote;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = ~std::uint64_t{0} >> 1;
    static_cast<void>(pair->a().submit({&operation, 1}, now_ns));
    for (events.clear(); events.empty(); now_ns += 1000) pair->a().poll(now_ns, events);
    return fabric.requests() - before;
  }

  VerbsFabric fabric;
  std::unique_ptr<RdmaPair> pair;
  PeerId peer = kNoPeer;
  RemoteRegionId remote = 0;
  std::uint64_t now_ns = 1'000'000'000;
  std::vector<Event> events;
};

}  // namespace

int main() {
  Bench bench;
  std::vector<Event> at_a;
  std::vector<Event> at_b;
  for (int i = 0; i < 100; ++i) bench.pair->step(bench.now_ns += 100'000, at_a, at_b);
  const Piece piece{memory_arena().data(), 64, kNoRegion};
  Operation first;
  first.peer = bench.peer;
  first.region = bench.remote;
  first.pieces = {&piece, 1};
  first.deadline_ns = ~std::uint64_t{0} >> 1;
  static_cast<void>(bench.pair->a().submit({&first, 1}, bench.now_ns));
  for (int i = 0; i < 1000; ++i) bench.pair->step(bench.now_ns += 100'000, at_a, at_b);
  bench.fabric.do_nothing(true);
  std::uint64_t slices = 0;
  for (int i = 0; i < 100; ++i) slices += bench.one_round(memory_arena().size());
  std::printf("%lu slices of %lu bytes\n", slices, 100 * memory_arena().size() / slices);
  return EXIT_SUCCESS;
}
