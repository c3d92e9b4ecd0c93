// SPDX-License-Identifier: Apache-2.0
//
// Opening an engine, finding an engine by name, connections of strangers, and inheritance by
// fork().
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "conformance/store/store_servers.h"
#include "libmc/base/fd.h"
#include "mc/transfer.h"

namespace mc::transfer::testing {
namespace {

struct Owned {
  mc_transfer_engine* engine = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { mc_transfer_close(engine); }
  mc_status open(const char* listen, const char* metadata = nullptr, const char* name = nullptr) {
    mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
    options.listen = listen;
    options.metadata = metadata;
    options.name = name;
    return mc_transfer_open(&options, &engine);
  }
  mc_transfer_info info() const {
    mc_transfer_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(mc_transfer_get_info(engine, &info), MC_OK);
    return info;
  }
};

TEST(TransferOpen, OthersReachNothingWithoutAKey) {
  for (const char* listen : {"0.0.0.0:0", "10.255.255.1:0", "[::]:0"}) {
    Owned owned;
    EXPECT_EQ(owned.open(listen), MC_INVALID_ARGUMENT) << listen;
    EXPECT_EQ(owned.engine, nullptr);
  }
}

TEST(TransferOpen, ATakenPortIsBusy) {
  Owned first;
  ASSERT_EQ(first.open("127.0.0.1:0"), MC_OK);
  Owned second;
  EXPECT_EQ(second.open(first.info().name), MC_BUSY);
}

TEST(TransferOpen, OptionsOutOfRangeAreNamed) {
  mc_transfer_engine* engine = nullptr;
  mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
  options.lanes = 17;
  EXPECT_EQ(mc_transfer_open(&options, &engine), MC_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(mc_transfer_last_error(), "16 lanes"), nullptr);
  options = MC_TRANSFER_OPTIONS_INIT;
  options.metadata = "ftp://nowhere";
  EXPECT_EQ(mc_transfer_open(&options, &engine), MC_INVALID_ARGUMENT);
  options = MC_TRANSFER_OPTIONS_INIT;
  options.key_file = "/nowhere/cluster.key";
  EXPECT_NE(mc_transfer_open(&options, &engine), MC_OK);
  EXPECT_EQ(mc_transfer_open(nullptr, nullptr), MC_INVALID_ARGUMENT);
}

// An engine finds the other by name in the store, until the other engine is gone.
void finds_by_name(const std::string& url) {
  Owned asking;
  ASSERT_EQ(asking.open("127.0.0.1:0", url.c_str(), "decode-0"), MC_OK) << mc_transfer_last_error();
  mc_transfer_segment segment = 0;
  EXPECT_EQ(mc_transfer_open_segment(asking.engine, "prefill-0", 0, &segment), MC_NOT_FOUND);
  {
    Owned asked;
    ASSERT_EQ(asked.open("127.0.0.1:0", url.c_str(), "prefill-0"), MC_OK);
    EXPECT_STREQ(asked.info().name, "prefill-0");
    char byte = 5;
    const mc_transfer_range range{&byte, 1};
    ASSERT_EQ(mc_transfer_register(asked.engine, &range, 1, MC_TRANSFER_READ), MC_OK);
    ASSERT_EQ(mc_transfer_open_segment(asking.engine, "prefill-0", 0, &segment), MC_OK)
        << mc_transfer_last_error();
    char got = 0;
    const mc_transfer_request request{
        MC_TRANSFER_GET, 0, &got, segment, reinterpret_cast<std::uint64_t>(&byte), 1};
    EXPECT_EQ(mc_transfer_run(asking.engine, &request, 1, nullptr), MC_OK);
    EXPECT_EQ(got, 5);
  }
  EXPECT_EQ(mc_transfer_open_segment(asking.engine, "prefill-0", 0, &segment), MC_NOT_FOUND);
}

TEST(TransferNames, AreFoundWithinTheProcess) { finds_by_name("memory://"); }

TEST(TransferNames, AreFoundInRedis) {
  conformance::StoreServer redis(conformance::redis_command());
  finds_by_name("redis://" + redis.host());
}

TEST(TransferPort, SurvivesConnectionsOfStrangers) {
  Owned owned;
  ASSERT_EQ(owned.open("127.0.0.1:0"), MC_OK);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(owned.info().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string nonsense(4096, '\x7f');
  for (int round = 0; round < 300; ++round) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    if (round % 3 == 0) std::memcpy(nonsense.data(), "mcrpc\r\n", 8);
    static_cast<void>(::send(socket.get(), nonsense.data(),
                             static_cast<std::size_t>(round) * 13 % nonsense.size(), MSG_NOSIGNAL));
  }
  EXPECT_EQ(mc_transfer_probe(owned.engine, owned.info().name, 0), MC_OK)
      << mc_transfer_last_error();
}

// A proxy in front of an engine. It hangs up on the first connection after a while, as an engine
// does that was too busy for the handshake, and forwards the second connection.
class BusyProxy {
 public:
  static constexpr int kHeldMs = 700;

  explicit BusyProxy(std::uint16_t to) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    socklen_t size = sizeof address_;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size);
    thread_ = std::thread([this, to] { serve(to); });
  }
  ~BusyProxy() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string name() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  int passed() const { return passed_; }

 private:
  void serve(std::uint16_t to) {
    {
      const Fd held(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ::poll(nullptr, 0, kHeldMs);
    }
    const Fd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller) return;
    ++passed_;
    const Fd engine(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = address_;
    address.sin_port = htons(to);
    EXPECT_EQ(::connect(engine.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    pollfd ends[] = {{caller.get(), POLLIN, 0}, {engine.get(), POLLIN, 0}};
    while (::poll(ends, 2, 5000) > 0) {
      for (int i = 0; i < 2; ++i) {
        if (ends[i].revents == 0) continue;
        char bytes[4096];
        const ssize_t got = ::recv(ends[i].fd, bytes, sizeof bytes, 0);
        if (got <= 0) return;
        EXPECT_EQ(::send(ends[1 - i].fd, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL), got);
      }
    }
  }

  const Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address_{};
  std::atomic<int> passed_ = 0;
  std::thread thread_;
};

TEST(TransferPort, AnEngineTooBusyForAHandshakeIsDialedAgain) {
  Owned asking, asked;
  ASSERT_EQ(asking.open("127.0.0.1:0"), MC_OK);
  ASSERT_EQ(asked.open("127.0.0.1:0"), MC_OK);
  const BusyProxy door(asked.info().port);
  EXPECT_EQ(mc_transfer_probe(asking.engine, door.name().c_str(), 10'000'000'000), MC_OK)
      << mc_transfer_last_error();
  EXPECT_EQ(door.passed(), 1);
}

TEST(TransferFork, CallsInAForkedChildReturnForked) {
  Owned owned;
  ASSERT_EQ(owned.open("127.0.0.1:0"), MC_OK);
  const int child = ::fork();
  if (child == 0) {
    mc_transfer_segment segment = 0;
    const bool told =
        mc_transfer_open_segment(owned.engine, "127.0.0.1:1", 0, &segment) == MC_FORKED;
    mc_transfer_close(owned.engine);
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(TransferCalls, NumbersOfNothingAreInvalid) {
  Owned owned;
  ASSERT_EQ(owned.open("127.0.0.1:0"), MC_OK);
  char byte = 0;
  std::uint32_t ended = 0;
  for (const std::uint64_t number : {0ull, 1ull, 0xffffffffull, 0x100000001ull, ~0ull}) {
    EXPECT_EQ(mc_transfer_poll(owned.engine, number, &ended, nullptr, 0), MC_INVALID_ARGUMENT);
    EXPECT_EQ(mc_transfer_wait(owned.engine, number, 0), MC_INVALID_ARGUMENT);
    EXPECT_EQ(mc_transfer_cancel(owned.engine, number), MC_INVALID_ARGUMENT);
    EXPECT_EQ(mc_transfer_free(owned.engine, number), MC_INVALID_ARGUMENT);
    EXPECT_EQ(mc_transfer_close_segment(owned.engine, number), MC_INVALID_ARGUMENT);
    const mc_transfer_request request{MC_TRANSFER_GET, 0, &byte, number, 4096, 1};
    EXPECT_EQ(mc_transfer_run(owned.engine, &request, 1, nullptr), MC_INVALID_ARGUMENT);
  }
  const mc_transfer_range ranges[] = {{&byte, 0}, {nullptr, 1}};
  EXPECT_EQ(mc_transfer_register(owned.engine, ranges, 1, 3), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_transfer_register(owned.engine, ranges + 1, 1, 3), MC_INVALID_ARGUMENT);
  const mc_transfer_range twice[] = {{&byte, 1}, {&byte, 1}};
  EXPECT_EQ(mc_transfer_register(owned.engine, twice, 2, 3), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_transfer_register(owned.engine, twice, 1, 4), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mc_transfer_register(owned.engine, twice, 1, 3), MC_OK) << "none of the two stayed";
}

}  // namespace
}  // namespace mc::transfer::testing
