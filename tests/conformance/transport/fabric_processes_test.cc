// SPDX-License-Identifier: Apache-2.0
//
// A serving host in a separate process. Over TCP, SIGKILL ends the host during reads.
// Through the memory of this host, no process is killed: a killed process may leave a spinlock of
// libfabric locked for ever, on which the next request hangs. Agents refuse that provider.
#include <unistd.h>

#include <algorithm>

#include "conformance/transport/fabric_fixture.h"
#include "conformance/transport/serving_process.h"

namespace mc::transport::testing {
namespace {

constexpr std::size_t kServedBytes = 4u << 20;

struct Provider {
  const char* name;
  const char* provider;
  const char* address;
};

class FabricProcesses : public ::testing::TestWithParam<Provider>, private Dialer {
 protected:
  void SetUp() override {
    if (const auto library = fabric::load_libfabric(); !library) {
      GTEST_SKIP() << library.error().to_string();
    }
    server_ = std::make_unique<ServingProcess>(
        [provider = GetParam()](Dialer& dialer) {
          auto options = FabricPair::options(kNodeB, provider.provider, provider.address);
          options.incarnation = static_cast<std::uint64_t>(::getpid());
          return std::move(
              fabric::FabricTransport::create(options, fabric::load_libfabric().value(), dialer)
                  .value());
        },
        kServedBytes, 8);
    transport_ = fabric::FabricTransport::create(
                     FabricPair::options(kNodeA, GetParam().provider, GetParam().address),
                     fabric::load_libfabric().value(), *this)
                     .value();
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(transport_->register_region(spec).value());
    peer_ = transport_->connect({kNodeB, 1}).value();
    remote_ = transport_->import_region(peer_, server_->description()).value();
  }
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      make_links(*transport_, dialed_, server_->port());
      transport_->poll(mc::now_ns(), events_);
    }
    return true;
  }
  OperationId read(std::span<std::byte> to) {
    const Piece piece{to.data(), to.size(), kNoRegion};
    Operation operation;
    operation.peer = peer_;
    operation.region = remote_;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = mc::now_ns() + kWatchdogNs;
    EXPECT_EQ(transport_->submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  const Event* event_of(OperationId id) const {
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
    }
    return nullptr;
  }

  std::unique_ptr<ServingProcess> server_;
  std::unique_ptr<fabric::FabricTransport> transport_;
  PeerId peer_ = kNoPeer;
  RemoteRegionId remote_ = 0;
  std::vector<DialRequest> dialed_;
  std::vector<Event> events_;
};

TEST_P(FabricProcesses, BytesComeFromAnotherProcess) {
  const Memory served = pattern(kServedBytes, 8);
  Memory to(kServedBytes);
  for (int i = 0; i < 3; ++i) {
    std::ranges::fill(to, std::byte{0});
    const OperationId id = read(to);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }))
        << transport_->describe_rails(peer_);
    ASSERT_EQ(event_of(id)->outcome, Outcome::kDone);
    ASSERT_EQ(to, served);
  }
}

using KilledFabricProcess = FabricProcesses;
TEST_P(KilledFabricProcess, EndsItsOperations) {
  Memory to(kServedBytes);
  ASSERT_TRUE(wait_for([&, id = read(to)] { return event_of(id) != nullptr; }))
      << transport_->describe_rails(peer_);
  std::vector<OperationId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(read(to));
  transport_->poll(mc::now_ns(), events_);
  server_->kill();
  for (const OperationId id : ids) {
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    const Outcome outcome = event_of(id)->outcome;
    EXPECT_TRUE(outcome == Outcome::kPeerLost || outcome == Outcome::kDone)
        << static_cast<int>(outcome);
  }
  EXPECT_TRUE(wait_for([&] {
    return std::ranges::any_of(
        events_, [](const Event& event) { return event.kind == Event::Kind::kPeerLost; });
  }));
  std::ranges::fill(to, std::byte{0x55});
  for (int i = 0; i < 100; ++i) transport_->poll(mc::now_ns(), events_);
  EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0x55}; }));
}

constexpr Provider kTcp{"tcp", "tcp;ofi_rxm", "127.0.0.1"};
constexpr Provider kShm{"shm", "shm", ""};
const auto name_of = [](const auto& provider) { return std::string(provider.param.name); };
INSTANTIATE_TEST_SUITE_P(Providers, FabricProcesses, ::testing::Values(kTcp, kShm), name_of);
INSTANTIATE_TEST_SUITE_P(Providers, KilledFabricProcess, ::testing::Values(kTcp), name_of);

}  // namespace
}  // namespace mc::transport::testing
