// SPDX-License-Identifier: Apache-2.0
//
// Reads by the rdma transport between two hosts, each a separate process as with ib_read_bw. The
// environment variables MC_RDMA_DEVICES_A and _B name the devices. Prints bytes per second for a
// size and a number of rails. Both processes wait for the transports as agents do. tests/rdma/bench
// compares the results with ib_read_bw.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "conformance/transport/memory_arena.h"
#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/serving_process.h"
#include "libmc/base/clock.h"
#include "transport/flow/waiter.h"

namespace {

using namespace mc::transport;           // NOLINT: a program's only file
using namespace mc::transport::testing;  // NOLINT

std::vector<std::string> first_devices(const char* variable, std::size_t count) {
  std::istringstream stream(std::getenv(variable) != nullptr ? std::getenv(variable) : "");
  std::vector<std::string> list;
  for (std::string word; list.size() < count && stream >> word;) list.push_back(word);
  return list;
}

std::unique_ptr<rdma::RdmaTransport> open_host(NodeId node, std::vector<std::string> devices,
                                               Dialer& dialer) {
  auto options = RdmaPair::options(node, std::move(devices));
  options.ack_timeout = 18;
  return rdma::RdmaTransport::create(options, rdma::load_verbs().value(), dialer).value();
}

class Asker : private Dialer {
 public:
  Asker(std::vector<std::string> devices, const ServingProcess& server, std::uint64_t bytes,
        std::size_t at_once)
      : server_(server), transport_(open_host(kNodeA, std::move(devices), *this)) {
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(transport_->register_region(spec).value());
    peer_ = transport_->connect({kNodeB, 1}).value();
    remote_ = transport_->import_region(peer_, server.description()).value();
    for (std::size_t i = 0; i < at_once; ++i) {
      // Many operations share memory, as all operations of ib_read_bw do.
      std::byte* data = memory_arena().data() + i * bytes % (memory_arena().size() / 2);
      pieces_.push_back({data, bytes, kNoRegion});
    }
  }

  // MB/s. The first second does not count, because the transport opens and measures lanes.
  double run(double seconds) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) begin(i);
    const std::uint64_t begin_ns = mc::now_ns() + 1'000'000'000;
    const auto end_ns = begin_ns + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t done_bytes = 0;
    std::vector<Event> events;
    Waiter waiter(0);
    for (std::uint64_t now = mc::now_ns(); now < end_ns; now = mc::now_ns()) {
      make_links(*transport_, dialed_, server_.port());
      events.clear();
      transport_->poll(now, events);
      for (const Event& event : events) {
        if (event.kind != Event::Kind::kCompleted) continue;
        if (event.outcome != Outcome::kDone) {
          std::fprintf(stderr, "rdma_bench: a read failed: %s\n",
                       to_status(event.outcome).to_string().c_str());
          std::exit(1);
        }
        if (now >= begin_ns) done_bytes += event.bytes;
        begin(event.cookie);
      }
      waiter.wait(transport_->wait_fd(), now, !events.empty(), transport_->next_poll_ns());
    }
    return static_cast<double>(done_bytes) / seconds / 1e6;
  }
  std::vector<RailReport> rails() const {
    std::vector<RailReport> reports;
    transport_->report_rails(reports);
    return reports;
  }

 private:
  void dial(const DialRequest& request) override { dialed_.push_back(request); }
  void begin(std::size_t i) {
    Operation operation;
    operation.peer = peer_;
    operation.region = remote_;
    operation.pieces = {&pieces_[i], 1};
    operation.cookie = i;
    operation.deadline_ns = mc::now_ns() + 60'000'000'000;
    static_cast<void>(transport_->submit({&operation, 1}, mc::now_ns()));
  }

  const ServingProcess& server_;
  std::unique_ptr<rdma::RdmaTransport> transport_;
  PeerId peer_ = kNoPeer;
  RemoteRegionId remote_ = 0;
  std::vector<Piece> pieces_;
  std::vector<DialRequest> dialed_;
};

int run(std::uint64_t bytes, std::size_t rails, std::size_t at_once, double seconds) {
  const auto devices_a = first_devices("MC_RDMA_DEVICES_A", rails);
  const auto devices_b = first_devices("MC_RDMA_DEVICES_B", rails);
  if (devices_a.size() < rails || devices_b.size() < rails) {
    std::fprintf(stderr, "rdma_bench: too few devices here; start it with tests/rdma/vm\n");
    return 2;
  }
  const ServingProcess server([&](Dialer& dialer) { return open_host(kNodeB, devices_b, dialer); },
                              bytes, 1);
  Asker asker(devices_a, server, bytes, at_once);
  std::printf("%.1f\n", asker.run(seconds));
  if (std::getenv("MC_RDMA_BENCH_RAILS") == nullptr) return 0;
  for (const RailReport& rail : asker.rails()) {
    std::fprintf(stderr, "%s: %s, %.1f MB/s, %.1f us, window %lu, %lu slices of %lu bytes\n",
                 rail.name.c_str(), rail_health_name(rail.status.health),
                 rail.status.bytes_per_ns * 1e3, static_cast<double>(rail.status.latency_ns) / 1e3,
                 rail.status.window_bytes, rail.status.done_slices,
                 rail.status.done_bytes / std::max<std::uint64_t>(rail.status.done_slices, 1));
  }
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
