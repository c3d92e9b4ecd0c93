// SPDX-License-Identifier: Apache-2.0
//
// The promises of transfer.h, between two processes: over TCP, over libfabric beside TCP, and from process to process.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "defect.h"
#include "mc/transfer.h"
#include "patience.h"
#include "transfer/peer_process.h"
#include "transport/fabric/library.h"
#include "transport/limits.h"

namespace mc::transfer::testing {
namespace {

constexpr std::uint64_t kPeerBytes = 8 << 20;
// Requests of 64 MiB that no machine finishes in the moment between two calls of a test.
constexpr std::size_t kEndlessRequests = 4000;
constexpr const char* kProvider = "tcp;ofi_rxm";

// kMapped: within the host, with memory on both sides that memcpy can copy without the kernel.
enum class Way { kTcp, kFabric, kSameHost, kMapped };

class TransferEngine : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (const auto library = transport::fabric::load_libfabric(); by_fabric() && !library) {
      GTEST_SKIP() << library.error().to_string();
    }
    if (mapped()) ::setenv("MC_TEST_SHARED", "1", 1);
    if (by_fabric()) ::setenv("MC_TEST_FABRIC", kProvider, 1);
    open({});
  }
  void TearDown() override {
    ::unsetenv("MC_TEST_SHARED");
    ::unsetenv("MC_TEST_FABRIC");
    mc_transfer_close(engine_);
  }
  static bool within_host() { return GetParam() == Way::kSameHost || GetParam() == Way::kMapped; }
  static bool mapped() { return GetParam() == Way::kMapped; }
  static bool by_fabric() { return GetParam() == Way::kFabric; }
  // Ways on which only registered local memory is as fast as possible.
  static bool registers() { return mapped() || by_fabric(); }

  void open(const std::string& key_file) {
    mc_transfer_close(engine_);
    mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
    options.same_host = within_host() ? 0 : 1;
    options.timeout_ns = kWatchdogNs;
    options.transports = by_fabric() ? "fabric" : "tcp";
    options.fabric_provider = kProvider;
    if (!key_file.empty()) options.key_file = key_file.c_str();
    ASSERT_EQ(mc_transfer_open(&options, &engine_), MC_OK) << mc_transfer_last_error();
  }
  mc_transfer_segment segment_of(const PeerProcess& peer) {
    mc_transfer_segment segment = 0;
    EXPECT_EQ(mc_transfer_open_segment(engine_, peer.name().c_str(), 0, &segment), MC_OK)
        << mc_transfer_last_error();
    if (by_fabric()) open_lanes(segment, peer.address());
    return segment;
  }
  std::uint64_t direct_bytes() {
    mc_transfer_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(mc_transfer_get_info(engine_, &info), MC_OK);
    return info.direct_bytes;
  }
  // Until then TCP carries the bytes.
  void open_lanes(mc_transfer_segment segment, std::uint64_t address) {
    const std::uint64_t before = direct_bytes();
    char byte = 0;
    EXPECT_TRUE(until([&] {
      const mc_status status = run(request(MC_TRANSFER_GET, &byte, segment, address, 1));
      return status == MC_PERMISSION_DENIED || direct_bytes() > before;
    }));
  }
  static mc_transfer_request request(mc_transfer_verb verb, void* local,
                                     mc_transfer_segment segment, std::uint64_t remote,
                                     std::uint64_t size) {
    return {verb, 0, local, segment, remote, size};
  }
  mc_status run(const mc_transfer_request& one) {
    const mc_transfer_range range{one.local, one.size};
    void* address = one.local;
    const bool registered =
        registers() && mc_transfer_register(engine_, &range, 1, MC_TRANSFER_READ) == MC_OK;
    const mc_status status = mc_transfer_run(engine_, &one, 1, nullptr);
    if (registered) {
      EXPECT_EQ(mc_transfer_unregister(engine_, &address, 1), MC_OK);
    }
    return status;
  }

  mc_transfer_engine* engine_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Paths, TransferEngine,
                         ::testing::Values(Way::kTcp, Way::kFabric, Way::kSameHost, Way::kMapped),
                         [](const auto& way) {
                           return way.param == Way::kTcp        ? "Tcp"
                                  : way.param == Way::kFabric   ? "Fabric"
                                  : way.param == Way::kSameHost ? "SameHost"
                                                                : "Mapped";
                         });

TEST_P(TransferEngine, UsesThePathThatItReports) {
  PeerProcess peer(4096);
  std::uint32_t local = 7;
  ASSERT_EQ(mc_transfer_segment_is_local(engine_, segment_of(peer), &local), MC_OK);
  EXPECT_EQ(local, within_host() ? 1u : 0u);
  mc_transfer_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(mc_transfer_get_info(engine_, &info), MC_OK);
  EXPECT_STREQ(info.transport, by_fabric() ? "fabric" : "");
}

TEST_P(TransferEngine, TheDirectTransportCarriesRegisteredMemoryOfEverySize) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(1 << 20, 7);
  for (const std::uint64_t size : {8ull, 4096ull, 1048576ull}) {
    for (const mc_transfer_verb verb : {MC_TRANSFER_PUT, MC_TRANSFER_GET}) {
      const std::uint64_t before = direct_bytes();
      const auto one = request(verb, local.data(), segment, peer.address(), size);
      ASSERT_EQ(run(one), MC_OK) << mc_transfer_last_error();
      EXPECT_EQ(direct_bytes() - before, by_fabric() ? size : 0);
      // The device cannot reach local memory that is not registered.
      ASSERT_EQ(mc_transfer_run(engine_, &one, 1, nullptr), MC_OK);
      EXPECT_EQ(direct_bytes() - before, by_fabric() ? size : 0);
    }
  }
  EXPECT_EQ(peer.tell("check 7"), std::to_string(1 << 20));
}

TEST_P(TransferEngine, NoDeviceReachesUnpinnedMemory) {
  std::vector<char> local(1 << 20, 7);
  void* const address = local.data();
  const mc_transfer_range range{address, local.size()};
  PeerProcess pinned(local.size());
  PeerProcess unpinned(local.size(), MC_TRANSFER_READ | MC_TRANSFER_WRITE | MC_TRANSFER_UNPINNED);
  const mc_transfer_segment segment = segment_of(pinned);
  mc_transfer_segment other = 0;
  ASSERT_EQ(mc_transfer_open_segment(engine_, unpinned.name().c_str(), 0, &other), MC_OK)
      << mc_transfer_last_error();
  const std::uint64_t before = direct_bytes();
  const auto to = request(MC_TRANSFER_PUT, address, other, unpinned.address(), local.size());
  ASSERT_EQ(run(to), MC_OK) << mc_transfer_last_error();
  const std::uint32_t rights = MC_TRANSFER_READ | MC_TRANSFER_UNPINNED;
  ASSERT_EQ(mc_transfer_register(engine_, &range, 1, rights), MC_OK);
  const auto from = request(MC_TRANSFER_PUT, address, segment, pinned.address(), local.size());
  ASSERT_EQ(mc_transfer_run(engine_, &from, 1, nullptr), MC_OK) << mc_transfer_last_error();
  EXPECT_EQ(direct_bytes(), before);
  EXPECT_EQ(unpinned.tell("check 7"), std::to_string(local.size()));
  EXPECT_EQ(pinned.tell("check 7"), std::to_string(local.size()));
}

TEST_P(TransferEngine, AChecksumTellsThatTheWrongBytesArrived) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(kPeerBytes, 3);
  mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  options.checksum = 1;
  options.notify = segment;
  const mc_transfer_request requests[] = {
      request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes - 1),
      request(MC_TRANSFER_GET, local.data(), segment, peer.address(), 1)};
  ASSERT_EQ(mc_transfer_run(engine_, requests, 1, &options), MC_OK) << mc_transfer_last_error();
  EXPECT_EQ(peer.tell("wait-note"), "//" + std::to_string(kPeerBytes - 1));
  // Two requests that write the same memory: only one can have left its bytes there.
  std::vector<char> other(kPeerBytes, 4);
  const mc_transfer_request two[] = {
      request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes),
      request(MC_TRANSFER_PUT, other.data(), segment, peer.address(), kPeerBytes)};
  mc_transfer_batch batch = 0;
  ASSERT_EQ(mc_transfer_submit(engine_, two, 2, &options, &batch), MC_OK);
  EXPECT_EQ(mc_transfer_wait(engine_, batch, 0), MC_CORRUPT) << mc_transfer_last_error();
  std::uint32_t ended = 0;
  mc_transfer_status statuses[2];
  ASSERT_EQ(mc_transfer_poll(engine_, batch, &ended, statuses, 2), MC_OK);
  EXPECT_EQ(ended, 1u);
  EXPECT_TRUE(statuses[0].status == MC_CORRUPT || statuses[1].status == MC_CORRUPT);
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
}

TEST_P(TransferEngine, DescribesTheWaysToItsPeers) {
  PeerProcess peer(4096);
  const mc_transfer_segment segment = segment_of(peer);
  char byte = 0;
  ASSERT_EQ(run(request(MC_TRANSFER_GET, &byte, segment, peer.address(), 1)), MC_OK);
  std::size_t size = 0;
  ASSERT_EQ(mc_transfer_describe(engine_, nullptr, &size), MC_OK);
  std::string text(size, ' ');
  ASSERT_EQ(mc_transfer_describe(engine_, text.data(), &size), MC_OK);
  EXPECT_NE(text.find(by_fabric() ? "fabric beside tcp" : "tcp alone"), std::string::npos) << text;
  EXPECT_NE(text.find(peer.name() + ": " +
                      (within_host() ? "copies within the host"
                       : by_fabric() ? "fabric"
                                     : "tcp")),
            std::string::npos)
      << text;
}

int mapped_files() {
  std::ifstream maps("/proc/self/maps");
  int files = 0;
  for (std::string line; std::getline(maps, line);) {
    files += line.find("/memfd:mc-transfer") != std::string::npos ? 1 : 0;
  }
  return files;
}

TEST_P(TransferEngine, MapsThePeersFilesWhileTheyAreRegisteredAndNothingElse) {
  ASSERT_EQ(mapped_files(), 0);
  PeerProcess peer(65536);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(4096, 1);
  const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address() + 8192, 4096);
  ASSERT_EQ(run(put), MC_OK);
  EXPECT_EQ(mapped_files(), mapped() ? 1 : 0);
  EXPECT_EQ(peer.tell("check 1"), "4096");
  ASSERT_EQ(peer.tell("unregister"), "MC_OK");
  EXPECT_EQ(run(put), MC_INVALID_ARGUMENT);
  EXPECT_EQ(mapped_files(), 0);
  ASSERT_EQ(peer.tell("register"), "MC_OK");
  EXPECT_EQ(mc_transfer_run(engine_, &put, 1, nullptr), MC_OK);
  EXPECT_EQ(mapped_files(), 0);  // the kernel copies local memory that is not registered
  ASSERT_EQ(run(put), MC_OK);
  EXPECT_EQ(mapped_files(), mapped() ? 1 : 0);
}

TEST_P(TransferEngine, WritesAndReadsBytesOfEverySize) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  unsigned char byte = 1;
  for (const std::uint64_t size :
       {1ull, 4095ull, 4096ull, 32'769ull, 262'144ull, 1'048'577ull, 8'388'607ull}) {
    std::vector<unsigned char> out(size, ++byte);
    std::iota(out.begin(), out.begin() + static_cast<long>(std::min<std::uint64_t>(size, 100)),
              byte);
    ASSERT_EQ(run(request(MC_TRANSFER_PUT, out.data(), segment, peer.address() + 1, size)), MC_OK)
        << mc_transfer_last_error();
    std::vector<unsigned char> in(size, 0);
    ASSERT_EQ(run(request(MC_TRANSFER_GET, in.data(), segment, peer.address() + 1, size)), MC_OK);
    EXPECT_EQ(in, out) << size;
    unsigned char before = 0;
    ASSERT_EQ(run(request(MC_TRANSFER_GET, &before, segment, peer.address(), 1)), MC_OK);
    EXPECT_EQ(before, 0x5a);
  }
}

TEST_P(TransferEngine, ABatchOfThousandsMovesEveryRequest) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  constexpr std::size_t kCount = 6000;
  std::vector<std::uint32_t> out(kCount);
  std::vector<std::uint32_t> in(kCount);
  std::iota(out.begin(), out.end(), 1u);
  std::vector<mc_transfer_request> requests;
  for (std::size_t i = 0; i < kCount; ++i) {
    requests.push_back(request(MC_TRANSFER_PUT, &out[i], segment, peer.address() + i * 64, 4));
  }
  ASSERT_EQ(mc_transfer_run(engine_, requests.data(), kCount, nullptr), MC_OK)
      << mc_transfer_last_error();
  for (std::size_t i = 0; i < kCount; ++i) {
    requests[i] = request(MC_TRANSFER_GET, &in[i], segment, peer.address() + i * 64, 4);
  }
  mc_transfer_batch batch = 0;
  ASSERT_EQ(mc_transfer_submit(engine_, requests.data(), kCount, nullptr, &batch), MC_OK);
  ASSERT_EQ(mc_transfer_wait(engine_, batch, 0), MC_OK);
  std::vector<mc_transfer_status> statuses(kCount);
  std::uint32_t ended = 0;
  ASSERT_EQ(mc_transfer_poll(engine_, batch, &ended, statuses.data(), kCount), MC_OK);
  EXPECT_EQ(ended, 1u);
  for (const mc_transfer_status& status : statuses) {
    ASSERT_TRUE(status.status == MC_OK && status.ended == 1 && status.bytes == 4);
  }
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_INVALID_ARGUMENT);
  EXPECT_EQ(in, out);
}

TEST_P(TransferEngine, UnregisteredMemoryIsRefusedAndStaysUntouched) {
  PeerProcess peer(8192);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(8193, 7);
  for (const auto& [offset, size] : std::vector<std::pair<std::int64_t, std::uint64_t>>{
           {0, 8193}, {-1, 2}, {8191, 2}, {8192, 1}, {1 << 30, 1}}) {
    const auto remote = peer.address() + static_cast<std::uint64_t>(offset);
    EXPECT_EQ(run(request(MC_TRANSFER_PUT, local.data(), segment, remote, size)),
              MC_INVALID_ARGUMENT);
    EXPECT_EQ(run(request(MC_TRANSFER_GET, local.data(), segment, remote, size)),
              MC_INVALID_ARGUMENT);
  }
  EXPECT_EQ(peer.tell("check 0x5a"), "8192");
}

TEST_P(TransferEngine, RightsAreThoseTheOwnerGave) {
  PeerProcess reading(4096, MC_TRANSFER_READ);
  PeerProcess writing(4096, MC_TRANSFER_WRITE);
  char byte = 9;
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment_of(reading), reading.address(), 1)),
            MC_PERMISSION_DENIED);
  EXPECT_EQ(run(request(MC_TRANSFER_GET, &byte, segment_of(reading), reading.address(), 1)), MC_OK);
  EXPECT_EQ(run(request(MC_TRANSFER_GET, &byte, segment_of(writing), writing.address(), 1)),
            MC_PERMISSION_DENIED);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment_of(writing), writing.address(), 1)), MC_OK);
  EXPECT_EQ(reading.tell("check 0x5a"), "4096");
}

TEST_P(TransferEngine, AnInvalidAddressFailsOnlyItsRequest) {
  PeerProcess peer(8192);
  const mc_transfer_segment segment = segment_of(peer);
  char* const nowhere = reinterpret_cast<char*>(4096);
  const char read_only[] = "text";
  char byte = 1;
  const std::uint64_t remote = peer.address();
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, nowhere, segment, remote, 1)), MC_INVALID_ARGUMENT);
  EXPECT_EQ(run(request(MC_TRANSFER_GET, nowhere, segment, remote, 1)), MC_INVALID_ARGUMENT);
  static const char constant[8192] = {1};
  EXPECT_EQ(run(request(MC_TRANSFER_GET, const_cast<char*>(constant), segment, remote, 1)),
            MC_INVALID_ARGUMENT);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, const_cast<char*>(read_only), segment, remote, 1)), MC_OK);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment, remote, 1)), MC_OK);
  mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  options.checksum = 1;
  const auto with_sum = request(MC_TRANSFER_PUT, nowhere, segment, remote, 1);
  EXPECT_EQ(mc_transfer_run(engine_, &with_sum, 1, &options), MC_INVALID_ARGUMENT);
}

TEST_P(TransferEngine, FollowsWhatThePeerRegistersAndUnregisters) {
  PeerProcess peer(65536);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(65536, 1);
  const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), 65536);
  ASSERT_EQ(run(put), MC_OK);
  ASSERT_EQ(peer.tell("unregister"), "MC_OK");
  EXPECT_EQ(run(put), MC_INVALID_ARGUMENT);
  ASSERT_EQ(peer.tell("register"), "MC_OK");
  EXPECT_EQ(run(put), MC_OK) << mc_transfer_last_error();
  ASSERT_EQ(peer.tell("unregister"), "MC_OK");
  ASSERT_EQ(peer.tell("register"), "MC_OK");
  EXPECT_EQ(run(put), MC_OK) << mc_transfer_last_error();
}

TEST_P(TransferEngine, UnregisteringUnderTransfersIsAnErrorOrSuccessButNoCrash) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(kPeerBytes, 1);
  for (int round = 0; round < 10; ++round) {
    const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes);
    mc_transfer_batch batches[4];
    for (auto& batch : batches) {
      ASSERT_EQ(mc_transfer_submit(engine_, &put, 1, nullptr, &batch), MC_OK);
    }
    ASSERT_EQ(peer.tell("unregister"), "MC_OK");
    for (const auto batch : batches) {
      const mc_status status = mc_transfer_wait(engine_, batch, 0);
      EXPECT_TRUE(status == MC_OK || status == MC_NOT_FOUND || status == MC_INVALID_ARGUMENT)
          << mc_status_name(status);
      EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
    }
    ASSERT_EQ(peer.tell("register"), "MC_OK");
  }
}

TEST_P(TransferEngine, LocalMemoryThatIsUnregisteredEndsItsRequests) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(kPeerBytes, 1);
  const mc_transfer_range range{local.data(), local.size()};
  ASSERT_EQ(mc_transfer_register(engine_, &range, 1, MC_TRANSFER_READ), MC_OK);
  const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes);
  mc_transfer_batch batches[8];
  for (auto& batch : batches) {
    ASSERT_EQ(mc_transfer_submit(engine_, &put, 1, nullptr, &batch), MC_OK);
  }
  void* const address = local.data();
  ASSERT_EQ(mc_transfer_unregister(engine_, &address, 1), MC_OK);
  for (const auto batch : batches) {
    // No request is in flight, so no call waits.
    std::uint32_t ended = 0;
    ASSERT_EQ(mc_transfer_poll(engine_, batch, &ended, nullptr, 0), MC_OK);
    EXPECT_EQ(ended, 1u);
    const mc_status status = mc_transfer_wait(engine_, batch, 0);
    EXPECT_TRUE(status == MC_OK || status == MC_CANCELLED) << mc_status_name(status);
    EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
  }
  EXPECT_EQ(mc_transfer_unregister(engine_, &address, 1), MC_NOT_FOUND);
}

TEST_P(TransferEngine, ANotificationComesAfterTheDataOfItsBatch) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  for (char byte = 1; byte <= 5; ++byte) {
    std::vector<char> local(kPeerBytes, byte);
    const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes);
    mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
    options.notify = segment;
    options.notify_name = {"block", 5};
    options.notify_message = {"is there", 8};
    ASSERT_EQ(mc_transfer_run(engine_, &put, 1, &options), MC_OK) << mc_transfer_last_error();
    EXPECT_EQ(peer.tell("wait-note"), "block/is there/" + std::to_string(kPeerBytes));
  }
}

TEST_P(TransferEngine, AFailedBatchSendsNoNotification) {
  PeerProcess peer(4096);
  const mc_transfer_segment segment = segment_of(peer);
  char byte = 1;
  const auto bad = request(MC_TRANSFER_PUT, &byte, segment, peer.address() + 4096, 1);
  mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  options.notify = segment;
  options.notify_name = {"wrong", 5};
  EXPECT_EQ(mc_transfer_run(engine_, &bad, 1, &options), MC_INVALID_ARGUMENT);
  ASSERT_EQ(mc_transfer_notify(engine_, segment, {"right", 5}, {"", 0}, 0), MC_OK)
      << mc_transfer_last_error();
  EXPECT_EQ(peer.tell("wait-note"), "right//4096");
}

TEST_P(TransferEngine, NotificationsHaveALimit) {
  PeerProcess peer(4096);
  const mc_transfer_segment segment = segment_of(peer);
  const std::string longest(MC_MAX_TRANSFER_NOTE_BYTES, 'x');
  EXPECT_EQ(mc_transfer_notify(engine_, segment, {longest.data(), longest.size()}, {"", 0}, 0),
            MC_OK);
  EXPECT_EQ(mc_transfer_notify(engine_, segment, {longest.data(), longest.size()}, {"y", 1}, 0),
            MC_INVALID_ARGUMENT);
  EXPECT_EQ(peer.tell("wait-note"), longest.substr(0, 511));
}

TEST_P(TransferEngine, APeerThatDiesEndsItsTransfersLongBeforeTheirDeadline) {
  PeerProcess peer(64 << 20);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(64 << 20, 1);
  std::vector<mc_transfer_request> requests(
      kEndlessRequests,
      request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), local.size()));
  mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  options.timeout_ns = 3'000'000'000'000;  // near the most that a transfer may take
  mc_transfer_batch batch = 0;
  ASSERT_EQ(mc_transfer_submit(engine_, requests.data(), requests.size(), &options, &batch), MC_OK);
  peer.kill();
  EXPECT_EQ(mc_transfer_wait(engine_, batch, 100 * kSecondNs), MC_AGENT_UNAVAILABLE);
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
  EXPECT_EQ(run(requests[0]), MC_AGENT_UNAVAILABLE);
}

TEST_P(TransferEngine, AnEngineRestartedAtItsAddressIsFoundAgain) {
  auto peer = std::make_unique<PeerProcess>(4096);
  const std::string name = peer->name();
  const mc_transfer_segment segment = segment_of(*peer);
  char byte = 1;
  ASSERT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment, peer->address(), 1)), MC_OK);
  peer.reset();
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment, 4096, 1)), MC_AGENT_UNAVAILABLE);
  PeerProcess again(4096, 3, name);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment, again.address(), 1)), MC_OK)
      << mc_transfer_last_error();
  EXPECT_EQ(segment_of(again), segment);
}

TEST_P(TransferEngine, CancelEndsABatch) {
  PeerProcess peer(64 << 20);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(64 << 20, 1);
  std::vector<mc_transfer_request> requests(
      kEndlessRequests,
      request(MC_TRANSFER_GET, local.data(), segment, peer.address(), local.size()));
  mc_transfer_batch batch = 0;
  ASSERT_EQ(mc_transfer_submit(engine_, requests.data(), requests.size(), nullptr, &batch), MC_OK);
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_BUSY);
  ASSERT_EQ(mc_transfer_cancel(engine_, batch), MC_OK);
  EXPECT_EQ(mc_transfer_wait(engine_, batch, 0), MC_CANCELLED);
  EXPECT_EQ(mc_transfer_free(engine_, batch), MC_OK);
}

TEST_P(TransferEngine, AStoppedPeerCostsNoMoreThanTheDeadline) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<char> local(kPeerBytes, 1);
  const auto put = request(MC_TRANSFER_PUT, local.data(), segment, peer.address(), kPeerBytes);
  ASSERT_EQ(run(put), MC_OK);
  peer.send(SIGSTOP);
  mc_transfer_submit_options options = MC_TRANSFER_SUBMIT_OPTIONS_INIT;
  // From process to process, the memory of a stopped process can still be written. Over TCP, the
  // deadline comes before the engine counts the silent peer as lost, on a slow machine too.
  options.timeout_ns = within_host() ? kWatchdogNs : transport::kLaneDeadNs / 3;
  const mc_status status = mc_transfer_run(engine_, &put, 1, &options);
  EXPECT_EQ(status, within_host() ? MC_OK : MC_TIMEOUT);
  peer.send(SIGCONT);
  EXPECT_EQ(run(put), MC_OK) << mc_transfer_last_error();
}

TEST_P(TransferEngine, ManyThreadsTransferAtOnce) {
  PeerProcess peer(kPeerBytes);
  const mc_transfer_segment segment = segment_of(peer);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      std::vector<unsigned char> out(70'000);
      std::vector<unsigned char> in(70'000);
      const std::uint64_t at = peer.address() + static_cast<std::uint64_t>(t) * 80'000;
      for (int i = 0; i < 50; ++i) {
        std::memset(out.data(), t * 16 + i, out.size());
        const std::uint64_t size = i % 2 == 0 ? out.size() : 100;
        if (run(request(MC_TRANSFER_PUT, out.data(), segment, at, size)) != MC_OK) {
          ADD_FAILURE() << "put: " << mc_transfer_last_error();
        }
        if (run(request(MC_TRANSFER_GET, in.data(), segment, at, size)) != MC_OK) {
          ADD_FAILURE() << "get: " << mc_transfer_last_error();
        }
        wrong += std::memcmp(in.data(), out.data(), size) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << kWrongBytes;
}

TEST_P(TransferEngine, ListsWhatThePeerHasRegistered) {
  PeerProcess peer(12288, MC_TRANSFER_READ);
  const mc_transfer_segment segment = segment_of(peer);
  mc_transfer_region regions[2];
  std::size_t count = 2;
  ASSERT_EQ(mc_transfer_list_regions(engine_, segment, 0, regions, &count), MC_OK);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(regions[0].address, peer.address());
  EXPECT_EQ(regions[0].size, 12288u);
  EXPECT_EQ(regions[0].rights, MC_TRANSFER_READ);
  ASSERT_EQ(peer.tell("unregister"), "MC_OK");
  count = 2;
  ASSERT_EQ(mc_transfer_list_regions(engine_, segment, 0, regions, &count), MC_OK);
  EXPECT_EQ(count, 0u);
}

TEST_P(TransferEngine, ThousandsOfRegionsAreFound) {
  mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
  mc_transfer_engine* owner = nullptr;
  ASSERT_EQ(mc_transfer_open(&options, &owner), MC_OK);
  std::vector<char> memory(MC_MAX_TRANSFER_REGIONS * 16ull, 3);
  std::vector<mc_transfer_range> ranges;
  for (std::size_t i = 0; i < MC_MAX_TRANSFER_REGIONS; ++i) {
    ranges.push_back({memory.data() + i * 16, 8});
  }
  ASSERT_EQ(mc_transfer_register(owner, ranges.data(), ranges.size(), 3), MC_OK)
      << mc_transfer_last_error();
  char more[8];
  const mc_transfer_range range{more, sizeof more};
  EXPECT_EQ(mc_transfer_register(owner, &range, 1, 3), MC_BUSY);
  mc_transfer_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(mc_transfer_get_info(owner, &info), MC_OK);
  EXPECT_EQ(info.regions, MC_MAX_TRANSFER_REGIONS);
  mc_transfer_segment segment = 0;
  ASSERT_EQ(mc_transfer_open_segment(engine_, info.name, 0, &segment), MC_OK)
      << mc_transfer_last_error();
  const auto last = reinterpret_cast<std::uint64_t>(ranges.back().address);
  EXPECT_EQ(run(request(MC_TRANSFER_GET, more, segment, last, 8)), MC_OK);
  EXPECT_EQ(more[7], 3);
  EXPECT_EQ(run(request(MC_TRANSFER_GET, more, segment, last + 8, 1)), MC_INVALID_ARGUMENT);
  mc_transfer_close(owner);
}

TEST_P(TransferEngine, ProbeTellsWhetherAnEngineAnswers) {
  auto peer = std::make_unique<PeerProcess>(4096);
  const std::string name = peer->name();
  EXPECT_EQ(mc_transfer_probe(engine_, name.c_str(), 0), MC_OK) << mc_transfer_last_error();
  peer.reset();
  EXPECT_EQ(mc_transfer_probe(engine_, name.c_str(), 0), MC_AGENT_UNAVAILABLE);
  EXPECT_EQ(mc_transfer_probe(engine_, "no address", 0), MC_INVALID_ARGUMENT);
}

TEST_P(TransferEngine, AClosedSegmentNamesNothing) {
  PeerProcess peer(4096);
  const mc_transfer_segment segment = segment_of(peer);
  char byte = 1;
  ASSERT_EQ(mc_transfer_close_segment(engine_, segment), MC_OK);
  EXPECT_EQ(mc_transfer_close_segment(engine_, segment), MC_INVALID_ARGUMENT);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment, peer.address(), 1)), MC_INVALID_ARGUMENT);
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment_of(peer), peer.address(), 1)), MC_OK);
}

class KeyFile {
 public:
  explicit KeyFile(const std::string& text) {
    path_ = ::testing::TempDir() + "/mc-transfer-key-" + std::to_string(::getpid()) + text;
    std::ofstream(path_) << std::string(40, text[0]);
    ::chmod(path_.c_str(), 0600);
  }
  ~KeyFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_P(TransferEngine, AnEngineWithAnotherKeyIsRefused) {
  const KeyFile good("a");
  const KeyFile bad("b");
  PeerProcess peer(4096, 3, "127.0.0.1:0", good.path());
  mc_transfer_segment segment = 0;
  char byte = 1;
  EXPECT_EQ(mc_transfer_open_segment(engine_, peer.name().c_str(), 0, &segment), MC_WRONG_KEY);
  open(bad.path());
  EXPECT_EQ(mc_transfer_open_segment(engine_, peer.name().c_str(), 0, &segment), MC_WRONG_KEY)
      << mc_transfer_last_error();
  open(good.path());
  EXPECT_EQ(run(request(MC_TRANSFER_PUT, &byte, segment_of(peer), peer.address(), 1)), MC_OK);
}

}  // namespace
}  // namespace mc::transfer::testing
