// SPDX-License-Identifier: Apache-2.0
//
// A serving host in a process of its own, ended by SIGKILL while it is read from; over TCP, and
// through the memory of this host.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "conformance/fabric_fixture.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::size_t kServedBytes = 4u << 20;

struct Provider {
  const char* name;
  const char* provider;
  const char* address;
};

class Nobody : public Dialer {
  void dial(const DialRequest&) override {}
};

// The serving process: says port and description on a pipe, then serves for ever.
[[noreturn]] void serve(int pipe, const Provider& provider) {
  Nobody nobody;
  auto options = FabricPair::options(kNodeB, provider.provider, provider.address);
  options.incarnation = static_cast<std::uint64_t>(::getpid());
  auto transport =
      fabric::FabricTransport::create(options, fabric::load_libfabric().value(), nobody).value();
  Memory memory = pattern(kServedBytes, 8);
  RegionSpec spec;
  spec.data = memory.data();
  spec.size_bytes = memory.size();
  spec.rights = kRemoteRead;
  const auto text = transport->describe(transport->register_region(spec).value()).value();
  const Fd listener = tcp::listen_tcp("127.0.0.1", 0).value();
  const std::uint32_t head[2] = {tcp::local_port(listener.get()).value(),
                                 static_cast<std::uint32_t>(text.size())};
  if (::write(pipe, head, sizeof head) < 0 || ::write(pipe, text.data(), text.size()) < 0) {
    ::_exit(1);
  }
  std::vector<Event> events;
  for (;;) {
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Link link;
      link.socket = std::move(socket);
      link.accepted = true;
      link.node = kNodeA;
      link.incarnation = 1;
      static_cast<void>(transport->attach(std::move(link)));
    }
    events.clear();
    transport->poll(mc::now_ns(), events);
    if (transport->next_poll_ns() > mc::now_ns()) wait_readable(transport->wait_fd(), 100'000);
  }
}

class FabricProcesses : public ::testing::TestWithParam<Provider>, private Dialer {
 protected:
  void SetUp() override {
    if (const auto library = fabric::load_libfabric(); !library) {
      GTEST_SKIP() << library.error().to_string();
    }
    start_server();
    transport_ = fabric::FabricTransport::create(
                     FabricPair::options(kNodeA, GetParam().provider, GetParam().address),
                     fabric::load_libfabric().value(), *this)
                     .value();
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(transport_->register_region(spec).value());
    peer_ = transport_->connect({kNodeB, 1}).value();
    remote_ = transport_->import_region(peer_, text_).value();
  }
  void TearDown() override { kill_server(); }

  // REQUIRES: this process has no domain open.
  void start_server() {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) serve(ends[1], GetParam());
    ::close(ends[1]);
    std::uint32_t head[2] = {0, 0};
    ASSERT_EQ(::read(ends[0], head, sizeof head), static_cast<ssize_t>(sizeof head));
    port_ = static_cast<std::uint16_t>(head[0]);
    text_.resize(std::min<std::uint32_t>(head[1], kMaxDescriptorBytes));
    ASSERT_EQ(::read(ends[0], text_.data(), text_.size()), static_cast<ssize_t>(text_.size()));
    ::close(ends[0]);
  }
  void kill_server() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + 20 * kSecondNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      for (const DialRequest& request : std::exchange(dialed_, {})) {
        auto socket = tcp::start_connect("127.0.0.1", port_);
        Link link;
        link.peer = request.peer;
        link.node = request.node;
        if (socket) link.socket = std::move(*socket);
        if (!link.socket || !transport_->attach(std::move(link)).ok()) {
          transport_->dial_failed(request.peer, 0);
        }
      }
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
    operation.deadline_ns = mc::now_ns() + 10 * kSecondNs;
    EXPECT_EQ(transport_->submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  const Event* event_of(OperationId id) const {
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
    }
    return nullptr;
  }

  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  std::vector<std::byte> text_;
  std::unique_ptr<fabric::FabricTransport> transport_;
  PeerId peer_ = kNoPeer;
  RemoteRegionId remote_ = 0;
  std::vector<DialRequest> dialed_;
  std::vector<Event> events_;
};

TEST_P(FabricProcesses, BytesComeFromAnotherProcessAndItsDeathEndsWhatIsUnderWay) {
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
  std::vector<OperationId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(read(to));
  transport_->poll(mc::now_ns(), events_);
  kill_server();
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

INSTANTIATE_TEST_SUITE_P(Providers, FabricProcesses,
                         ::testing::Values(Provider{"tcp", "tcp;ofi_rxm", "127.0.0.1"},
                                           Provider{"shm", "shm", ""}),
                         [](const auto& provider) { return std::string(provider.param.name); });

}  // namespace
}  // namespace mc::transport::testing
