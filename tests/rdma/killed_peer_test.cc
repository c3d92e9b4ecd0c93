// SPDX-License-Identifier: Apache-2.0
//
// A serving host in a process of its own, ended by SIGKILL while it is read from.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/clock.h"
#include "rdma/rdma_hosts.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::size_t kServedBytes = 4u << 20;

// The serving process: says port and description on a pipe, then serves for ever.
[[noreturn]] void serve(int pipe) {
  class Nobody : public Dialer {
    void dial(const DialRequest&) override {}
  } nobody;
  auto options = RdmaPair::options(kNodeB, devices_b());
  options.ack_timeout = kAckTimeout;
  options.incarnation = static_cast<std::uint64_t>(::getpid());
  auto transport = rdma::RdmaTransport::create(options, rdma::load_verbs().value(), nobody).value();
  Memory memory = pattern(kServedBytes, 8);
  RegionSpec spec;
  spec.data = memory.data();
  spec.size_bytes = memory.size();
  spec.rights = kRemoteRead;
  const auto text = transport->describe(transport->register_region(spec).value()).value();
  Fd listener = tcp::listen_tcp("127.0.0.1", 0).value();
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
    wait_readable(transport->wait_fd(), 1'000'000);
  }
}

struct Server {
  pid_t pid = -1;
  std::uint16_t port = 0;
  std::vector<std::byte> text;
};

// REQUIRES: this process has no device open.
Server start_server() {
  Server server;
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  server.pid = ::fork();
  if (server.pid == 0) serve(ends[1]);
  ::close(ends[1]);
  std::uint32_t head[2] = {0, 0};
  EXPECT_EQ(::read(ends[0], head, sizeof head), static_cast<ssize_t>(sizeof head));
  server.port = static_cast<std::uint16_t>(head[0]);
  server.text.resize(std::min<std::uint32_t>(head[1], kMaxDescriptorBytes));
  EXPECT_EQ(::read(ends[0], server.text.data(), server.text.size()),
            static_cast<ssize_t>(server.text.size()));
  ::close(ends[0]);
  return server;
}

class KilledPeerTest : public ::testing::Test, private Dialer {
 protected:
  void SetUp() override {
    if (devices_a().empty() || devices_b().empty()) {
      GTEST_SKIP() << "no RDMA devices here; tests/run --rdma starts a machine that has them";
    }
    servers_ = {start_server(), start_server()};
    auto options = RdmaPair::options(kNodeA, devices_a());
    options.ack_timeout = kAckTimeout;
    transport_ = rdma::RdmaTransport::create(options, rdma::load_verbs().value(), *this).value();
    RegionSpec spec;
    spec.data = memory_arena().data();
    spec.size_bytes = memory_arena().size();
    static_cast<void>(transport_->register_region(spec).value());
    peer_ = transport_->connect({kNodeB, 1}).value();
  }
  void TearDown() override {
    for (const Server& server : servers_) {
      ::kill(server.pid, SIGKILL);
      ::waitpid(server.pid, nullptr, 0);
    }
  }
  void dial(const DialRequest& request) override { dialed_.push_back(request); }

  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + 20 * kSecondNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      for (const DialRequest& request : std::exchange(dialed_, {})) {
        auto socket = tcp::start_connect("127.0.0.1", servers_[at_].port);
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

  std::vector<Server> servers_;
  std::size_t at_ = 0;  // the one that is dialed
  std::vector<DialRequest> dialed_;
  std::unique_ptr<rdma::RdmaTransport> transport_;
  PeerId peer_ = kNoPeer;
  std::vector<Piece> pieces_;
  std::vector<Memory> to_;
  std::vector<Event> events_;
};

TEST_F(KilledPeerTest, ReadsOfAKilledPeerEndAsLostOnceAndTheNextProcessIsFound) {
  const auto first = transport_->import_region(peer_, servers_[0].text).value();
  const auto ids = submit_reads(first, 256);  // a second's worth and more
  // Operations take turns, so all of them are under way then.
  ASSERT_TRUE(wait_for([&] { return transport_->counters().read_bytes >= 4u << 20; }))
      << transport_->describe_rails(peer_);
  EXPECT_EQ(std::ranges::count(events_, Event::Kind::kPeerLost, &Event::kind), 0)
      << transport_->describe_rails(peer_);
  ::kill(servers_[0].pid, SIGKILL);
  const std::uint64_t killed_ns = mc::now_ns();
  at_ = 1;
  servers_[1].port = 1;  // nobody listens there
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
  const auto first = transport_->import_region(peer_, servers_[0].text).value();
  auto ids = submit_reads(first, 8);
  ASSERT_TRUE(wait_for([&] { return transport_->counters().read_bytes >= 1u << 20; }))
      << transport_->describe_rails(peer_);
  at_ = 1;
  ::kill(servers_[0].pid, SIGKILL);
  ASSERT_TRUE(wait_for([&] { return completed() == ids.size(); }));
  events_.clear();
  const auto second = transport_->import_region(peer_, servers_[1].text).value();
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
