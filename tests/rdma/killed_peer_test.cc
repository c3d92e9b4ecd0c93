// SPDX-License-Identifier: Apache-2.0
//
// A serving host in a separate process, which SIGKILL ends during reads.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "conformance/transport/serving_process.h"
#include "libmc/base/clock.h"
#include "rdma/rdma_hosts.h"

namespace mc::transport::testing {
namespace {

constexpr std::size_t kServedBytes = 4u << 20;

std::unique_ptr<ServingProcess> start_server() {
  return std::make_unique<ServingProcess>(
      [](Dialer& dialer) {
        auto options = RdmaPair::options(kNodeB, devices_b());
        options.ack_timeout = kAckTimeout;
        options.incarnation = static_cast<std::uint64_t>(::getpid());
        return std::move(
            rdma::RdmaTransport::create(options, rdma::load_verbs().value(), dialer).value());
      },
      kServedBytes, 8);
}

class KilledPeerTest : public ::testing::Test, private Dialer {
 protected:
  void SetUp() override {
    if (devices_a().empty() || devices_b().empty()) {
      GTEST_SKIP() << "no RDMA devices here; tests/run --rdma starts a machine that has them";
    }
    for (int i = 0; i < 2; ++i) servers_.push_back(start_server());
    auto options = RdmaPair::options(kNodeA, devices_a());
    options.ack_timeout = kAckTimeout;
    transport_ = rdma::RdmaTransport::create(options, rdma::load_verbs().value(), *this).value();
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(transport_->register_region(spec).value());
    peer_ = transport_->connect({kNodeB, 1}).value();
  }
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      make_links(*transport_, dialed_, at_ < servers_.size() ? servers_[at_]->port() : 1);
      transport_->poll(mc::now_ns(), events_);
    }
    return true;
  }
  std::vector<OperationId> submit_reads(RemoteRegionId region, std::size_t count) {
    std::vector<Operation> operations(count);
    pieces_.assign(count, Piece{});
    to_.assign(std::min<std::size_t>(count, 16), Memory(1u << 20, std::byte{0}));
    std::vector<OperationId> ids;
    for (std::size_t i = 0; i < count; ++i) {
      Memory& to = to_[i % to_.size()];
      pieces_[i] = {to.data(), to.size(), kNoRegion};
      operations[i].peer = peer_;
      operations[i].region = region;
      operations[i].offset_bytes = i % 4 << 20;
      operations[i].pieces = {&pieces_[i], 1};
      operations[i].deadline_ns = mc::now_ns() + 30 * kSecondNs;
    }
    EXPECT_EQ(transport_->submit(operations, mc::now_ns()), count);
    for (const Operation& operation : operations) ids.push_back(operation.id);
    return ids;
  }
  std::size_t completed() const {
    return static_cast<std::size_t>(
        std::ranges::count(events_, Event::Kind::kCompleted, &Event::kind));
  }

  std::vector<std::unique_ptr<ServingProcess>> servers_;
  std::size_t at_ = 0;  // the dialed process; beyond the last: none
  std::vector<DialRequest> dialed_;
  std::unique_ptr<rdma::RdmaTransport> transport_;
  PeerId peer_ = kNoPeer;
  std::vector<Piece> pieces_;
  std::vector<Memory> to_;
  std::vector<Event> events_;
};

TEST_F(KilledPeerTest, ReadsOfAKilledPeerEndAsLostOnceAndTheNextProcessIsFound) {
  const auto first = transport_->import_region(peer_, servers_[0]->description()).value();
  const auto ids = submit_reads(first, 256);  // more than a second of reads
  // Operations take turns, so all operations are under way then.
  ASSERT_TRUE(wait_for([&] { return transport_->counters().read_bytes >= 4u << 20; }))
      << transport_->describe_rails(peer_);
  EXPECT_EQ(std::ranges::count(events_, Event::Kind::kPeerLost, &Event::kind), 0)
      << transport_->describe_rails(peer_);
  servers_[0]->kill();
  const std::uint64_t killed_ns = mc::now_ns();
  at_ = servers_.size();
  ASSERT_TRUE(wait_for([&] { return completed() == ids.size(); }));
  std::printf("all operations ended %lu ms after the kill\n",
              (mc::now_ns() - killed_ns) / 1'000'000);
  std::size_t lost = 0;
  for (const OperationId id : ids) {
    EXPECT_EQ(std::ranges::count(events_, id, &Event::id), 1);
    const auto event = std::ranges::find(events_, id, &Event::id);
    if (event->outcome == Outcome::kPeerLost) ++lost;
    EXPECT_TRUE(event->outcome == Outcome::kPeerLost || event->outcome == Outcome::kDone);
  }
  EXPECT_GT(lost, 0u);
  for (Memory& to : to_) std::ranges::fill(to, std::byte{0xee});
  const std::uint64_t quiet_until_ns = mc::now_ns() + kSecondNs / 2;
  ASSERT_TRUE(wait_for([&] { return mc::now_ns() > quiet_until_ns; }));
  for (const Memory& to : to_) EXPECT_EQ(to, Memory(1u << 20, std::byte{0xee})) << "landed late";
}

TEST_F(KilledPeerTest, AfterAKillTheNextProcessIsReadFrom) {
  const auto first = transport_->import_region(peer_, servers_[0]->description()).value();
  auto ids = submit_reads(first, 8);
  ASSERT_TRUE(wait_for([&] { return transport_->counters().read_bytes >= 1u << 20; }))
      << transport_->describe_rails(peer_);
  at_ = 1;
  servers_[0]->kill();
  ASSERT_TRUE(wait_for([&] { return completed() == ids.size(); }));
  events_.clear();
  const auto second = transport_->import_region(peer_, servers_[1]->description()).value();
  ASSERT_TRUE(wait_for([&] {
    return transport_->describe_rails(peer_).find(": up") != std::string::npos;
  })) << transport_->describe_rails(peer_);
  ids = submit_reads(second, 4);
  ASSERT_TRUE(wait_for([&] { return completed() == ids.size(); }));
  const Memory expected = pattern(kServedBytes, 8);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto event = std::ranges::find(events_, ids[i], &Event::id);
    EXPECT_EQ(event->outcome, Outcome::kDone);
    EXPECT_EQ(std::memcmp(to_[i].data(), &expected[i << 20], to_[i].size()), 0);
  }
}

}  // namespace
}  // namespace mc::transport::testing
