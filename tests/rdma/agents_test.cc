// SPDX-License-Identifier: Apache-2.0
//
// Agents that read each other one-sidedly, by RDMA on real devices and by libfabric over loopback:
// fetched objects are right, the expected transport carries them, and devices and agents may go
// meanwhile.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <thread>

#include "cluster/cluster_fixture.h"
#include "defect.h"
#include "libmc/base/clock.h"
#include "rdma/rdma_hosts.h"
#include "transport/fabric/fabric_transport.h"

namespace mc::cluster {
namespace {

using conformance::slice;
using transport::testing::devices_a;
using transport::testing::devices_b;
using transport::testing::shell;

class OneSidedAgentsTest : public ClusterTest {
 protected:
  explicit OneSidedAgentsTest(std::string transport) : transport_(std::move(transport)) {}

  void SetUp() override {
    if (transport_ == "rdma" && (devices_a().size() < 2 || devices_b().size() < 2)) {
      GTEST_SKIP() << "no RDMA devices here; tests/run --rdma starts a machine that has them";
    }
    if (const auto library = transport::fabric::load_libfabric();
        transport_ == "fabric" && !library) {
      GTEST_SKIP() << library.error().to_string();
    }
  }
  // With two hosts, each host has the devices of one end of all rails. With three hosts, the second
  // and the third host share the devices of one end.
  static std::string devices_of(std::size_t host, std::size_t hosts) {
    if (host == 0) return devices_a()[0] + "," + devices_a()[1];
    return hosts == 2 ? devices_b()[0] + "," + devices_b()[1] : devices_b()[host - 1];
  }
  void add_agent(std::size_t hosts, bool one_sided, const std::string& pool) {
    options_ = {{"masters", master_->address()},
                {"pool_bytes", pool},
                {"max_pool_bytes", "192MiB"},
                {"huge_pages", "off"},
                {"transports", one_sided ? transport_ : "tcp"},
                {"descriptor_store", "none"}};
    if (transport_ == "fabric") options_["fabric_provider"] = "tcp;ofi_rxm";
    if (transport_ == "rdma") {
      options_["rdma_devices"] = devices_of(agents_.size(), hosts);
      options_["rdma_ack_timeout"] = "18";
    }
    agents_.push_back(std::make_unique<conformance::AgentProcess>());
    start_agent(agents_.size() - 1);
  }
  // An agent for each host; false: with TCP alone.
  void start_with(const std::vector<bool>& one_sided, const std::string& pool = "96MiB") {
    master_ = std::make_unique<metadata::MasterProcess>(
        std::vector<std::string>{"--cluster-store", "memory://", "--recover-ms", option_time(100)});
    for (const bool own : one_sided) {
      add_agent(one_sided.size(), own, pool);
      ASSERT_FALSE(HasFailure());
    }
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      ASSERT_TRUE(until([&] {
        return ask(i, "status")["cluster"]["members"].asUInt64() >= agents_.size();
      })) << agents_[i]->log();
    }
  }
  // The bytes of one-sided reads from all peers.
  std::uint64_t one_sided_bytes(std::size_t agent) {
    std::uint64_t bytes = 0;
    const Json::Value peers = ask(agent, "rails")["peers"];
    for (const Json::Value& peer : peers) {
      for (const Json::Value& rail : peer["rails"]) {
        if (rail["transport"].asString() == transport_) bytes += rail["done_bytes"].asUInt64();
      }
    }
    return bytes;
  }
  std::string rails(std::size_t agent) { return ask(agent, "rails").toStyledString(); }
  std::string fetch(std::size_t agent, const std::string& key, std::uint64_t bytes) {
    mc_client*& client = patient_[agent];
    if (client == nullptr) {
      mc_open_options options = MC_OPEN_OPTIONS_INIT;
      const std::string socket = agents_[agent]->socket();
      options.agent = socket.c_str();
      options.timeout_ns = kWatchdogNs;
      EXPECT_EQ(mc_open(&options, &client), MC_OK) << mc_last_error();
    }
    std::string value(bytes, '\0');
    std::size_t length = 0;
    const mc_status status = mc_get(client, slice(key), value.data(), value.size(), &length);
    value.resize(length);
    return status == MC_OK ? value : "<" + std::string(mc_status_name(status)) + ">";
  }
  // Puts at one agent and fetches at the other until a read is one-sided.
  bool takes_one_sided(std::size_t from, std::size_t to) {
    const std::uint64_t before = one_sided_bytes(to);
    return until([&] {
      const std::string key = "way " + std::to_string(next_++);
      const std::string value = content(key, 300'000);
      EXPECT_EQ(put(from, key, value), MC_OK) << mc_last_error();
      EXPECT_TRUE(fetch(to, key, value.size()) == value) << key;
      return one_sided_bytes(to) > before + 200'000;
    });
  }
  void TearDown() override {
    for (const auto& [agent, client] : patient_) mc_close(client);
  }

  const std::string transport_;
  std::map<std::size_t, mc_client*> patient_;
  std::size_t next_ = 0;
};

class AgentsTest : public OneSidedAgentsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  AgentsTest() : OneSidedAgentsTest(GetParam()) {}
};

class RdmaAgentsTest : public OneSidedAgentsTest {
 protected:
  RdmaAgentsTest() : OneSidedAgentsTest("rdma") {}
};

TEST_P(AgentsTest, LargeObjectsComeOneSidedlyAndAreRight) {
  ASSERT_NO_FATAL_FAILURE(start_with({true, true}, "160MiB"));
  ASSERT_TRUE(takes_one_sided(0, 1)) << rails(1) << agents_[0]->log() << agents_[1]->log();
  ASSERT_TRUE(takes_one_sided(1, 0)) << rails(0) << agents_[0]->log() << agents_[1]->log();
  // Reads with unknown places, then with known places.
  const std::uint64_t before = one_sided_bytes(1);
  for (const std::size_t size : {std::size_t{4096}, std::size_t{70'000}, std::size_t{(1 << 20) + 1},
                                 std::size_t{64 << 20}}) {
    const std::string key = "of " + std::to_string(size);
    const std::string value = content(key, size);
    ASSERT_EQ(put(0, key, value), MC_OK) << mc_last_error();
    const std::uint64_t start_ns = now_ns();
    EXPECT_TRUE(fetch(1, key, size) == value) << key;
    std::printf("%zu bytes in %lu ms\n", size, (now_ns() - start_ns) / 1'000'000);
    EXPECT_TRUE(fetch(1, key, size) == value) << key;
  }
  EXPECT_GE(one_sided_bytes(1), before + (64u << 20)) << rails(1);

  constexpr std::size_t kKeys = 20;
  std::vector<std::string> keys, values;
  std::vector<mc_slice> names;
  for (std::size_t i = 0; i < kKeys; ++i) {
    keys.push_back("batch " + std::to_string(i));
    values.push_back(content(keys[i], 100'000 + i));
    ASSERT_EQ(put(0, keys[i], values[i]), MC_OK);
  }
  for (const std::string& key : keys) names.push_back(slice(key));
  std::vector<mc_view> views(kKeys);
  std::vector<mc_status> statuses(kKeys);
  const std::uint64_t before_batch = one_sided_bytes(1);
  mc_get_view_batch(client(1), names.data(), kKeys, views.data(), statuses.data());
  for (std::size_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(statuses[i], MC_OK) << keys[i];
    EXPECT_TRUE(std::string_view(static_cast<const char*>(views[i].data), views[i].size) ==
                values[i])
        << keys[i];
    mc_view_release(&views[i]);
  }
  EXPECT_GE(one_sided_bytes(1), before_batch + kKeys * 100'000);
  // A removed object is gone, although its bytes are still in place and the place is known.
  ASSERT_EQ(put(0, "removed", content("removed", 200'000)), MC_OK);
  EXPECT_TRUE(fetch(1, "removed", 200'000) == content("removed", 200'000));
  ASSERT_EQ(mc_remove(client(0), slice("removed"), 0), MC_OK);
  EXPECT_EQ(fetch(1, "removed", 200'000), "<MC_NOT_FOUND>");
  EXPECT_EQ(counter(1, "misses", "corrupt"), 0u);
}

TEST_P(AgentsTest, AnAgentConfiguredForTcpIsReadByTcp) {
  ASSERT_NO_FATAL_FAILURE(start_with({false, true}));
  const std::string value = content("plain", 1 << 20);
  ASSERT_EQ(put(0, "plain", value), MC_OK);
  EXPECT_TRUE(fetch(1, "plain", value.size()) == value);
  ASSERT_EQ(put(1, "back", value), MC_OK);
  EXPECT_TRUE(fetch(0, "back", value.size()) == value);
  EXPECT_EQ(one_sided_bytes(1), 0u);
}

TEST_P(AgentsTest, AResizedPoolIsReadOneSidedlyInItsBackedPart) {
  ASSERT_NO_FATAL_FAILURE(start_with({true, true}, "64MiB"));
  ASSERT_TRUE(takes_one_sided(0, 1)) << rails(1);
  for (const char* const bytes : {"128MiB", "64MiB", "128MiB"}) {
    const std::uint64_t pool_bytes = bytes[0] == '1' ? 128u << 20 : 64u << 20;
    Json::Value request;
    request["namespace"] = "default";
    request["pool_bytes"] = Json::Value(Json::UInt64{pool_bytes});
    ask(0, "resize", request);
    ASSERT_TRUE(until([&] {
      const Json::Value segment = ask(0, "segments")["segments"][0];
      return segment["settled"].asBool() && segment["reserved_bytes"].asUInt64() == pool_bytes;
    })) << ask(0, "segments").toStyledString();
    // Objects that fill the pool, so that the end of the pool is read too.
    const std::size_t count = pool_bytes / (2 << 20) - 4;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string key = std::string(bytes) + std::to_string(next_++);
      const std::string value = content(key, 2 << 20);
      ASSERT_EQ(put(0, key, value), MC_OK) << mc_last_error();
      if (i % 4 != 0) continue;
      EXPECT_TRUE(fetch(1, key, value.size()) == value) << key;
    }
    ASSERT_TRUE(takes_one_sided(0, 1)) << rails(1);
  }
  EXPECT_EQ(counter(1, "misses", "corrupt"), 0u);
}

TEST_P(AgentsTest, AnObjectEvictedDuringAReadIsAMissAndNeverWrong) {
  ASSERT_NO_FATAL_FAILURE(start_with({true, true}, "64MiB"));
  ASSERT_TRUE(takes_one_sided(0, 1)) << rails(1);
  constexpr std::size_t kBytes = 1 << 20;
  constexpr std::size_t kKeys = 200;
  std::atomic<bool> stop{false};
  static_cast<void>(client(0));
  std::thread writer([&] {
    for (std::size_t i = 0; !stop; ++i) {
      const std::string key = "key " + std::to_string(i % kKeys);
      static_cast<void>(put(0, key, content(key, kBytes)));
    }
  });
  std::size_t right = 0, missed = 0, wrong = 0;
  const std::uint64_t before = one_sided_bytes(1);
  const std::uint64_t until_ns = now_ns() + 15 * kSecondNs;
  for (std::size_t i = 0; now_ns() < until_ns; ++i) {
    const std::string key = "key " + std::to_string(i * 7919 % kKeys);
    const std::string value = fetch(1, key, kBytes);
    if (value.starts_with("<MC_")) {
      ++missed;
    } else {
      ++(value == content(key, kBytes) ? right : wrong);
    }
  }
  stop = true;
  writer.join();
  std::printf("right %zu, missed %zu; one-sidedly %lu MiB; sums that did not fit %lu\n", right,
              missed, (one_sided_bytes(1) - before) >> 20, counter(1, "misses", "corrupt"));
  EXPECT_EQ(wrong, 0u) << kWrongBytes;
  EXPECT_GT(right, 0u);
  EXPECT_GT(one_sided_bytes(1), before);
}

TEST_P(AgentsTest, AHolderThatIsKilledWhileItIsReadIsReplacedByAnother) {
  ASSERT_NO_FATAL_FAILURE(start_with({true, true, true}));
  ASSERT_TRUE(takes_one_sided(1, 0)) << rails(0);
  ASSERT_TRUE(takes_one_sided(2, 0)) << rails(0);
  constexpr std::size_t kBytes = 24 << 20;
  const std::string value = content("large", kBytes);
  mc_put_options twice = MC_PUT_OPTIONS_INIT;
  twice.replicas = 2;
  // At the first of the two agents, and then by the master's order at the other agent.
  ASSERT_EQ(put(1, "large", value, &twice), MC_OK) << mc_last_error();
  // The master knows a copy before the bytes of the copy have arrived.
  ASSERT_TRUE(until([&] {
    return counter(0, "counters", "copies_kept") + counter(2, "counters", "copies_kept") >= 1;
  }));
  EXPECT_GE(holders(0, "large"), 2u);
  const std::string alone = content("alone", kBytes);
  ASSERT_EQ(put(1, "alone", alone), MC_OK);
  const std::uint64_t before = one_sided_bytes(0);
  const std::uint64_t start_ns = now_ns();
  std::string got;
  std::thread reader([&] { got = fetch(0, "alone", kBytes); });
  // In the middle of the transfer.
  EXPECT_TRUE(until([&] { return one_sided_bytes(0) > before + (1 << 20); }));
  const std::uint64_t killed_ns = now_ns();
  agents_[1]->kill_hard();
  reader.join();
  std::printf("the read ended %lu ms after the kill, %s\n", (now_ns() - killed_ns) / 1'000'000,
              got == alone ? "complete" : got.substr(0, 20).c_str());
  // Until the master has given up the holder, and then.
  EXPECT_TRUE(got == alone || got == "<MC_HOLDER_AWAY>" || got == "<MC_NOT_FOUND>")
      << got.substr(0, 30);
  EXPECT_LT(now_ns() - start_ns, kWatchdogNs);
  std::string last;
  EXPECT_TRUE(until([&] { return (last = fetch(0, "large", kBytes)) == value; }))
      << last.substr(0, 30) << rails(0) << ask(0, "status")["cluster"].toStyledString();
}

TEST_F(RdmaAgentsTest, WithoutItsDevicesAnAgentGoesOnByTcpAndTakesThemBack) {
  ASSERT_NO_FATAL_FAILURE(start_with({true, true}));
  ASSERT_TRUE(takes_one_sided(0, 1)) << rails(1);
  // The reader's pool is too small for all objects: nearly every object has to be fetched.
  constexpr std::size_t kBytes = 1 << 20;
  constexpr std::size_t kKeys = 60;
  for (std::size_t i = 0; i < kKeys; ++i) {
    const std::string key = "load " + std::to_string(i);
    ASSERT_EQ(put(0, key, content(key, kBytes)), MC_OK);
  }
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> right{0}, other{0}, longest_ns{0};
  static_cast<void>(fetch(1, "load 0", kBytes));
  std::thread reader([&] {
    for (std::size_t i = 0; !stop; ++i) {
      const std::string key = "load " + std::to_string(i * 7 % kKeys);
      // The object is not kept, so that the next get fetches it again.
      const std::uint64_t start_ns = now_ns();
      const std::string value = fetch(1, key, kBytes);
      longest_ns = std::max<std::uint64_t>(longest_ns, now_ns() - start_ns);
      ++(value == content(key, kBytes) ? right : other);
    }
  });
  for (const std::string& device : devices_b()) {
    // In the background: the deletion waits for every user of the device.
    shell("(rdma link delete " + device + " >/dev/null 2>&1 &) && sleep 0.1");
  }
  for (const std::string& device : devices_b()) {
    shell("until ! rdma link show " + device + "/1 >/dev/null 2>&1; do sleep 0.1; done");
  }
  const std::uint64_t gone = right;
  EXPECT_TRUE(until([&] { return right > gone + 20; })) << "TCP carries on";
  // The devices cannot be made anew until the agent has closed the former devices.
  EXPECT_TRUE(until([&] {
    const std::string obstacles = ask(1, "rails")["one_sided"]["obstacles"].asString();
    return std::ranges::all_of(devices_b(), [&](const std::string& device) {
      return obstacles.find(device) != std::string::npos;
    });
  })) << ask(1, "rails")["one_sided"]["obstacles"].asString();
  for (std::size_t i = 0; i < 2; ++i) {
    shell("rdma link add " + devices_b()[i] + " type rxe netdev b" + std::to_string(i));
  }
  const std::uint64_t added_ns = now_ns();
  stop = true;
  reader.join();
  EXPECT_TRUE(takes_one_sided(0, 1)) << rails(1);
  std::printf("right %lu; longest %lu ms; RDMA again %lu ms after the devices\n", right.load(),
              longest_ns / 1'000'000, (now_ns() - added_ns) / 1'000'000);
  EXPECT_EQ(other, 0u);
}

INSTANTIATE_TEST_SUITE_P(Transports, AgentsTest, ::testing::Values("rdma", "fabric"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace mc::cluster
