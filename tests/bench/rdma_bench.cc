// SPDX-License-Identifier: Apache-2.0
//
// Reads by the rdma transport between two hosts in one process, of the devices that are named in
// MC_RDMA_DEVICES_A and _B: bytes a second, for a size and a number of rails. tests/rdma/bench
// sets them beside ib_read_bw.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "conformance/memory_arena.h"
#include "conformance/rdma_pair.h"
#include "libmc/base/clock.h"

namespace {

using namespace mc::transport;           // NOLINT: a program's only file
using namespace mc::transport::testing;  // NOLINT

std::vector<std::string> first_devices(const char* variable, std::size_t count) {
  std::istringstream stream(std::getenv(variable) != nullptr ? std::getenv(variable) : "");
  std::vector<std::string> list;
  for (std::string word; list.size() < count && stream >> word;) list.push_back(word);
  return list;
}

int run(std::uint64_t bytes, std::size_t rails, std::size_t at_once, double seconds) {
  auto options_a = RdmaPair::options(kNodeA, first_devices("MC_RDMA_DEVICES_A", rails));
  auto options_b = RdmaPair::options(kNodeB, first_devices("MC_RDMA_DEVICES_B", rails));
  if (options_a.devices.size() < rails || options_b.devices.size() < rails) {
    std::fprintf(stderr, "rdma_bench: too few devices here; start it with tests/rdma/vm\n");
    return 2;
  }
  options_a.ack_timeout = options_b.ack_timeout = 18;
  RdmaPair pair(rdma::load_verbs().value(), options_a, options_b);
  RegionSpec spec;
  spec.data = memory_arena().data();
  spec.size_bytes = memory_arena().size();
  spec.rights = kRemoteRead;
  static_cast<void>(pair.a().register_region(spec).value());
  const RegionId region = pair.b().register_region(spec).value();
  const PeerId peer = pair.a().connect({kNodeB, 1}).value();
  const RemoteRegionId remote =
      pair.a().import_region(peer, pair.b().describe(region).value()).value();
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < at_once; ++i) {
    pieces.push_back({memory_arena().data() + i * bytes, bytes, kNoRegion});
  }
  std::vector<Event> at_a;
  std::vector<Event> at_b;
  const auto begin = [&](std::size_t i) {
    Operation operation;
    operation.peer = peer;
    operation.region = remote;
    operation.offset_bytes = 32u << 20;
    operation.pieces = {&pieces[i], 1};
    operation.cookie = i;
    operation.deadline_ns = mc::now_ns() + 60'000'000'000;
    static_cast<void>(pair.a().submit({&operation, 1}, mc::now_ns()));
  };
  for (std::size_t i = 0; i < at_once; ++i) begin(i);
  // The first second opens lanes and finds out how fast they are.
  const std::uint64_t begin_ns = mc::now_ns() + 1'000'000'000;
  const auto end_ns = begin_ns + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t done = 0;
  for (std::uint64_t now = mc::now_ns(); now < end_ns; now = mc::now_ns()) {
    at_a.clear();
    pair.step(now, at_a, at_b);
    for (const Event& event : at_a) {
      if (event.kind != Event::Kind::kCompleted) continue;
      if (event.outcome != Outcome::kDone) {
        std::fprintf(stderr, "rdma_bench: a read failed: %s\n",
                     to_status(event.outcome).to_string().c_str());
        return 1;
      }
      if (now >= begin_ns) done += event.bytes;
      begin(event.cookie);
    }
  }
  std::printf("%.1f\n", static_cast<double>(done) / seconds / 1e6);
  return 0;
}

}  // namespace

// rdma_bench BYTES RAILS [AT-ONCE [SECONDS]]: prints MB/s.
int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: rdma_bench BYTES RAILS [AT-ONCE [SECONDS]]\n");
    return 2;
  }
  return run(std::stoull(argv[1]), std::stoul(argv[2]), argc > 3 ? std::stoul(argv[3]) : 16,
             argc > 4 ? std::stod(argv[4]) : 3);
}
