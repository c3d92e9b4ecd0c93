// SPDX-License-Identifier: Apache-2.0
//
// One host reads from several hosts at once, by a single device. The reader asks all hosts together
// for no more than the device's credit, and all bytes arrive. tcp_transport_test.cc has the test
// for TCP.
#include <algorithm>
#include <stdexcept>

#include "conformance/transport/fabric_fixture.h"
#include "conformance/transport/linked_pair.h"
#include "conformance/transport/rdma_pair.h"
#include "conformance/transport/transport_fixture.h"
#include "conformance/transport/verbs_fabric.h"
#include "libmc/base/clock.h"
#include "transport/fabric/fabric_transport.h"

namespace mc::transport::testing {
namespace {

constexpr std::size_t kSenders = 4;
constexpr std::uint64_t kEachReadBytes = 8u << 20;
constexpr std::uint64_t kBudget = 256 * 1024;  // less than a slice of each peer

template <typename T>
class Incast : private Dialer {
 public:
  using Make = std::function<Result<std::unique_ptr<T>>(NodeId, Dialer&)>;

  explicit Incast(const Make& make) : receiver_(make_one(make, kSenders + 1)) {
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(receiver_->register_region(spec).value());
    for (std::size_t i = 0; i < kSenders; ++i) {
      senders_.push_back(make_one(make, i + 1));
      RegionSpec served;
      served.data = memory_.data();
      served.size_bytes = kEachReadBytes;
      served.rights = kRemoteRead;
      const RegionId region = senders_[i]->register_region(served).value();
      pieces_[i] = {to_[i].data(), kEachReadBytes, kNoRegion};
      reads_[i].peer = receiver_->connect({i + 1, 1}).value();
      reads_[i].region =
          receiver_->import_region(reads_[i].peer, senders_[i]->describe(region).value()).value();
      reads_[i].pieces = {&pieces_[i], 1};
    }
  }

  void run() {
    for (Operation& read : reads_) read.deadline_ns = mc::now_ns() + 60'000 * kMs;
    ASSERT_EQ(receiver_->submit(reads_, mc::now_ns()), kSenders);
    const std::uint64_t until_ns = mc::now_ns() + 30'000 * kMs;
    while (done() < kSenders && mc::now_ns() < until_ns) {
      step();
      most_asked_ = std::max(most_asked_, asked());
      // A peer that leaves while owing bytes does not keep the credit.
      if (done() == kSenders - 1 && most_asked_ > 0) receiver_->close_peer(reads_[0].peer);
    }
    ASSERT_EQ(done(), kSenders);
    EXPECT_LE(most_asked_, kMaxSliceBytes) << "the budget, or one slice";
    EXPECT_GT(most_asked_, 0u);
    EXPECT_EQ(asked(), 0u);
    for (std::size_t i = 1; i < kSenders; ++i) EXPECT_TRUE(to_[i] == memory_) << i;
  }

 private:
  std::unique_ptr<T> make_one(const Make& make, NodeId node) {
    auto made = make(node, *this);
    if (!made) throw std::runtime_error(made.error().to_string());
    return std::move(*made);
  }
  void dial(const DialRequest& request) override { dialed_.push_back(request); }
  void step() {
    for (const DialRequest& request : std::exchange(dialed_, {})) {
      LinkEnds ends = make_link(request, 1);
      ends.accepted.node = kSenders + 1;
      static_cast<void>(senders_[request.node - 1]->attach(std::move(ends.accepted)));
      static_cast<void>(receiver_->attach(std::move(ends.dialed)));
    }
    receiver_->poll(mc::now_ns(), events_);
    std::vector<Event> ignored;
    for (auto& sender : senders_) sender->poll(mc::now_ns(), ignored);
  }
  std::size_t done() const {
    return static_cast<std::size_t>(
        std::ranges::count(events_, Event::Kind::kCompleted, &Event::kind));
  }
  // The bytes of large operations that are asked for and not here yet.
  std::uint64_t asked() const {
    std::vector<RailReport> rails;
    receiver_->report_rails(rails);
    std::uint64_t bytes = 0;
    for (const RailReport& rail : rails) {
      if (rail.name.find("small") == std::string::npos) bytes += rail.status.outstanding_bytes;
    }
    return bytes;
  }

  Memory memory_ = pattern(kEachReadBytes, 5);
  std::vector<Memory> to_ = std::vector<Memory>(kSenders, Memory(kEachReadBytes));
  std::array<Piece, kSenders> pieces_{};
  std::array<Operation, kSenders> reads_{};
  std::vector<DialRequest> dialed_;
  std::vector<Event> events_;
  std::uint64_t most_asked_ = 0;
  std::unique_ptr<T> receiver_;
  std::vector<std::unique_ptr<T>> senders_;
};

TEST(RdmaIncast, PeersThatShareLittleCreditAllGetTheirBytes) {
  VerbsFabric fabric;
  for (std::uint8_t host = 1; host <= kSenders + 1; ++host) {
    fabric.add({.name = "nic" + std::to_string(host), .host = host});
  }
  Incast<rdma::RdmaTransport> incast([](NodeId node, Dialer& dialer) {
    rdma::RdmaOptions options = RdmaPair::options(node, {"nic" + std::to_string(node)});
    options.opening_threads = 0;
    options.max_asked_bytes = kBudget;
    return rdma::RdmaTransport::create(options, VerbsFabric::verbs(), dialer);
  });
  incast.run();
}

TEST(FabricIncast, PeersThatShareLittleCreditAllGetTheirBytes) {
  const auto library = fabric::load_libfabric();
  if (!library) GTEST_SKIP() << library.error().to_string();
  Incast<fabric::FabricTransport> incast([&](NodeId node, Dialer& dialer) {
    auto options = FabricPair::options(node, "tcp;ofi_rxm", "127.0.0.1");
    options.max_asked_bytes = kBudget;
    return fabric::FabricTransport::create(options, *library, dialer);
  });
  incast.run();
}

}  // namespace
}  // namespace mc::transport::testing
