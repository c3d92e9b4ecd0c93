// SPDX-License-Identifier: Apache-2.0
//
// Two masters and four partitions of the keys, as users see the cluster, also when a master dies.
#include <algorithm>
#include <atomic>
#include <future>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include "cluster/cluster_fixture.h"
#include "conformance/store/store_servers.h"
#include "libmc/base/clock.h"
#include "metadata/directory/key_hash.h"

namespace mc::cluster {
namespace {

using conformance::slice;
using metadata::MasterClient;
namespace wire = metadata::wire;

constexpr std::uint32_t kPartitions = 4;
const std::uint64_t kTimeoutNs = 5 * kSecondNs;
// The promised takeover time, and a margin for a loaded machine.
const std::uint64_t kTakeoverNs = 2 * kSecondNs;
const std::uint64_t kSlackNs = 4 * kSecondNs;

class Partitions : public ClusterTest {
 protected:
  void start_partitions(std::size_t agents) {
    redis_ = std::make_unique<conformance::StoreServer>(conformance::redis_command());
    url_ = "redis://" + redis_->host();
    const std::vector<std::string> flags = {"--cluster-store", url_,
                                            "--partitions",    std::to_string(kPartitions),
                                            "--recover-ms",    option_time(300)};
    other_ = std::make_unique<metadata::MasterProcess>(flags);
    start(agents, {{"cluster_store", url_}}, flags);
    ASSERT_TRUE(until([&] { return led_by(*master_).size() == 2 && led_by(*other_).size() == 2; }))
        << ask(0, "cluster").toStyledString();
    wait_until_joined();
  }

  static std::uint32_t partition_of(const std::string& key) {
    static const metadata::KeyHasher hasher("mc cluster default");
    return metadata::partition_of(hasher.hash("default", key), kPartitions);
  }
  std::set<std::uint32_t> led_by(const metadata::MasterProcess& master) {
    std::set<std::uint32_t> partitions;
    const Json::Value status = ask(0, "cluster");
    for (const Json::Value& partition : status["partitions"]) {
      if (partition["leader"].asString() == master.address())
        partitions.insert(partition["partition"].asUInt());
    }
    return partitions;
  }
  // Makes keys until each partition has some.
  static std::vector<std::string> some_keys(const std::string& prefix, std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(prefix + std::to_string(i));
    return keys;
  }
  void put_all(const std::vector<std::string>& keys, std::size_t agents) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(put(i % agents, keys[i], content(keys[i], 500)), MC_OK) << mc_last_error();
    }
  }
  std::size_t lost(const std::vector<std::string>& keys, std::size_t reader) {
    std::size_t count = 0;
    for (const std::string& key : keys) {
      const std::string value = content(key, 500);
      count += until([&] { return get(reader, key) == value; }) ? 0 : 1;
      if (count > 2) break;  // more are probably lost
    }
    return count;
  }

  // Asks the master of a partition like a tool does.
  template <typename Answer, typename Call>
  Answer of_partition(std::uint32_t partition, Call call) {
    metadata::MasterClientOptions to;
    to.store = url_;
    to.partition = partition;
    to.partitions = kPartitions;
    auto tool = MasterClient::create(to, nullptr);
    EXPECT_TRUE(tool) << (tool ? "" : tool.error().to_string());
    auto said = std::make_shared<std::promise<Result<Answer>>>();
    auto answer = said->get_future();
    call(**tool, [said](Result<Answer> result) { said->set_value(std::move(result)); });
    Result<Answer> result = answer.get();
    EXPECT_TRUE(result) << (result ? "" : result.error().to_string());
    return result ? std::move(*result) : Answer();
  }
  std::vector<std::string> listed(std::uint32_t partition, const std::string& prefix) {
    const auto answer =
        of_partition<wire::ListAnswer>(partition, [&](MasterClient& master, auto done) {
          wire::Match match = matching(prefix);
          match.limit = 1000;
          master.list(match, now_ns() + kWatchdogNs, done);
        });
    std::vector<std::string> keys;
    for (const wire::ListedKey& key : answer.keys) keys.push_back(key.key);
    return keys;
  }
  static wire::Match matching(const std::string& prefix) {
    wire::Match match;
    match.name_space = "default";
    match.pattern = prefix;
    return match;
  }

  std::unique_ptr<conformance::StoreServer> redis_;
  std::string url_;
  std::unique_ptr<metadata::MasterProcess> other_;
};

TEST_F(Partitions, KeysOfAllPartitionsArePutFoundAndRemoved) {
  start_partitions(3);
  const auto keys = some_keys("key ", 120);
  put_all(keys, 2);
  for (const std::string& key : keys) {
    EXPECT_TRUE(exists(2, key)) << key;
    EXPECT_TRUE(get(2, key) == content(key, 500)) << key;
    EXPECT_GE(holders(1, key), 1u) << key;
  }
  // Each master knows the keys of its partition, and no other keys.
  std::map<std::uint32_t, std::size_t> count;
  for (const std::string& key : keys) ++count[partition_of(key)];
  ASSERT_EQ(count.size(), kPartitions);
  Json::Value status;
  EXPECT_TRUE(until([&] {  // a partition that has moved recovers for a while
    status = ask(1, "cluster");
    return std::ranges::all_of(status["partitions"], [](const Json::Value& partition) {
      return partition["state"].asString() == "ok";
    });
  })) << status.toStyledString();
  for (const Json::Value& partition : status["partitions"]) {
    EXPECT_GE(partition["keys"].asUInt64(), count[partition["partition"].asUInt()]);
    EXPECT_GT(partition["epoch"].asUInt64(), 0u);
  }
  EXPECT_EQ(ask(2, "nodes")["nodes"].size(), 3u);

  // A call for keys of all partitions, in order. Every tenth key does not exist.
  std::vector<std::string> asked = keys;
  for (std::size_t i = 9; i < asked.size(); i += 10) asked[i] = "nobody's " + std::to_string(i);
  std::vector<mc_slice> names;
  for (const std::string& key : asked) names.push_back(slice(key));
  std::vector<mc_status> statuses(asked.size());
  ASSERT_EQ(mc_exists_batch(client(2), names.data(), names.size(), statuses.data()), MC_OK);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(statuses[i], i % 10 == 9 ? MC_NOT_FOUND : MC_OK) << asked[i];
  }
  mc_remove_batch(client(2), names.data(), 30, statuses.data(), kTimeoutNs);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(statuses[i], i % 10 == 9 ? MC_NOT_FOUND : MC_OK) << asked[i];
    for (std::size_t agent = 0; agent < 3; ++agent) EXPECT_FALSE(exists(agent, asked[i]));
  }
}

TEST_F(Partitions, ListingsAndPatternsCoverOnePartitionPerMasterAndTogetherAllKeys) {
  start_partitions(2);
  const auto keys = some_keys("a/", 100);
  put_all(keys, 2);
  put_all({"b/1", "b/2", "b/3"}, 2);
  std::set<std::string> all;
  for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
    for (const std::string& key : listed(partition, "a/")) {
      EXPECT_EQ(partition_of(key), partition) << key;
      EXPECT_TRUE(all.insert(key).second) << key << " is listed twice";
    }
  }
  EXPECT_EQ(all, (std::set<std::string>(keys.begin(), keys.end())));
  // A removal by pattern at a master leaves the keys of the other masters.
  const auto remove = [&](std::uint32_t partition) {
    return of_partition<wire::RemoveMatchingAnswer>(
        partition, [&](MasterClient& master, auto done) {
          master.remove_matching(matching("a/"), now_ns() + kWatchdogNs, done);
        });
  };
  const std::size_t of_first = listed(0, "a/").size();
  ASSERT_GT(of_first, 0u);
  EXPECT_EQ(remove(0).removed, of_first);
  for (const std::string& key : keys) EXPECT_EQ(exists(1, key), partition_of(key) != 0) << key;
  std::size_t removed = of_first;
  for (std::uint32_t partition = 1; partition < kPartitions; ++partition)
    removed += remove(partition).removed;
  EXPECT_EQ(removed, keys.size());
  for (const std::string& key : keys) EXPECT_FALSE(exists(0, key) || exists(1, key)) << key;
  EXPECT_TRUE(exists(0, "b/2") && exists(1, "b/2"));
}

// Puts on one host and gets on another host, with keys whose masters live.
class Undisturbed {
 public:
  Undisturbed(const std::string& writer, const std::string& reader,
              std::function<bool(const std::string&)> concerns)
      : concerns_(std::move(concerns)) {
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.timeout_ns = kTimeoutNs;
    for (const auto& [socket, client] :
         {std::pair(&writer, &writer_), std::pair(&reader, &reader_)}) {
      options.agent = socket->c_str();
      EXPECT_EQ(mc_open(&options, client), MC_OK) << mc_last_error();
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Undisturbed() {
    stop();
    mc_close(writer_);
    mc_close(reader_);
  }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::size_t calls() const { return calls_; }
  // Waits for many more calls.
  bool goes_on() const {
    const std::size_t before = calls_;
    return until([&] { return calls_ > before + 60; });
  }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void run() {
    for (std::uint64_t i = 0; !stop_; ++i) {
      const std::string key = "undisturbed " + std::to_string(i);
      if (!concerns_(key)) continue;
      const std::string value = content(key, 300);
      const auto note = [&](const char* what, mc_status status) {
        ++calls_;
        if (status != MC_OK && failures_.size() < 10) {
          failures_.push_back(key + ": " + what + " " + mc_status_name(status));
        }
      };
      note("put", mc_put(writer_, slice(key), slice(value), nullptr));
      std::string bytes(300, '\0');
      std::size_t length = 0;
      note("get", mc_get(reader_, slice(key), bytes.data(), bytes.size(), &length));
      if (bytes != value) note("bytes", MC_CORRUPT);
      note("remove", mc_remove(reader_, slice(key), kTimeoutNs));
    }
  }

  const std::function<bool(const std::string&)> concerns_;
  mc_client* writer_ = nullptr;
  mc_client* reader_ = nullptr;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> calls_{0};
  std::vector<std::string> failures_;
  std::thread thread_;
};

TEST_F(Partitions, TheOtherMasterTakesOverFromAKilledOneWhileItsOwnPartitionsGoOn) {
  start_partitions(2);
  const auto keys = some_keys("before ", 100);
  put_all(keys, 2);
  const std::set<std::uint32_t> theirs = led_by(*master_);
  ASSERT_EQ(theirs.size(), 2u);
  std::uint64_t took_ns = 0;
  std::size_t calls = 0;
  {
    Undisturbed load(agents_[0]->socket(), agents_[1]->socket(),
                     [&](const std::string& key) { return !theirs.contains(partition_of(key)); });
    EXPECT_TRUE(load.goes_on());
    const std::uint64_t killed_ns = now_ns();
    master_->kill_hard();
    ASSERT_TRUE(until([&] { return led_by(*other_).size() == kPartitions; }))
        << ask(0, "cluster").toStyledString();
    took_ns = now_ns() - killed_ns;
    EXPECT_TRUE(load.goes_on());
    load.stop();
    calls = load.calls();
    EXPECT_EQ(load.failures(), std::vector<std::string>());
  }
  EXPECT_LT(took_ns, kTakeoverNs + kSlackNs);
  std::cout << "led by the other after " << took_ns / 1'000'000 << " ms; meanwhile " << calls
            << " calls of other shares, none failed\n";
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
  // A master that comes back gets partitions again.
  master_->start();
  EXPECT_TRUE(until([&] { return led_by(*master_).size() == 2 && led_by(*other_).size() == 2; }))
      << ask(0, "cluster").toStyledString();
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
}

TEST_F(Partitions, MastersThatRestartWithAnEmptyStoreLoseNothing) {
  start_partitions(2);
  const auto keys = some_keys("kept ", 150);
  put_all(keys, 2);
  master_->kill_hard();
  other_->kill_hard();
  conformance::redis_cli(redis_->port(), {"FLUSHALL"});
  master_->start();
  other_->start();
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
  ASSERT_TRUE(
      until([&] { return led_by(*master_).size() + led_by(*other_).size() == kPartitions; }));
}

TEST_F(Partitions, ADrainMovesTheKeysOfAllPartitions) {
  start_partitions(3);
  const auto keys = some_keys("drained ", 100);
  for (const std::string& key : keys) ASSERT_EQ(put(2, key, content(key, 500)), MC_OK);
  Json::Value request;
  const Json::Value nodes = ask(2, "nodes");
  for (const Json::Value& node : nodes["nodes"]) {
    if (node["self"].asBool()) request["node"] = node["node"];
  }
  Json::Value progress;
  ASSERT_TRUE(until([&] {
    progress = ask(0, "drain", request);
    return progress["done"].asBool();
  })) << progress.toStyledString();
  EXPECT_EQ(progress["copied"].asUInt64(), keys.size());
  close_clients(2);
  agents_[2]->kill_hard();
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
}

TEST_F(Partitions, OneMasterLeadsAllPartitionsAndALaterAgentJoinsEach) {
  start(1, {},
        {"--cluster-store", "memory://", "--recover-ms", option_time(100), "--partitions", "3"});
  EXPECT_EQ(led_by(*master_), (std::set<std::uint32_t>{0, 1, 2}));
  const auto keys = some_keys("early ", 60);
  put_all(keys, 1);
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  start_agent(1);
  wait_until_joined();
  EXPECT_EQ(lost(keys, 1), 0u);
  // The master's store begins empty.
  master_->kill_hard();
  master_->start();
  EXPECT_EQ(lost(keys, 1), 0u);
  EXPECT_EQ(ask(1, "status")["cluster"]["partitions"].asUInt(), 3u);
}

TEST_F(Partitions, AgentsNoticeAClusterThatIsMadeAnewWithOtherPartitions) {
  // Each master has a separate memory store; only one master runs at a time.
  const std::vector<std::string> flags = {"--cluster-store", "memory://", "--recover-ms",
                                          option_time(100)};
  const auto in_partitions = [&](const char* count) {
    std::vector<std::string> with = flags;
    with.insert(with.end(), {"--partitions", count});
    return std::make_unique<metadata::MasterProcess>(with);
  };
  other_ = in_partitions("3");
  other_->kill_hard();
  master_ = in_partitions("2");
  options_ = {{"masters", master_->address() + "," + other_->address()},
              {"pool_bytes", "64MiB"},
              {"huge_pages", "off"}};
  const auto partitions = [&](std::size_t agent) {
    return ask(agent, "status")["cluster"]["partitions"].asUInt();
  };
  for (std::size_t i = 0; i < 2; ++i) {
    agents_.push_back(std::make_unique<conformance::AgentProcess>());
    start_agent(i);
    EXPECT_TRUE(until([&] { return partitions(i) == 2; }));
  }
  wait_until_joined();
  const auto keys = some_keys("kept ", 90);
  put_all(keys, 2);
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
  master_->kill_hard();
  other_->start();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(until([&] { return partitions(i) == 3; }));
  wait_until_joined();
  EXPECT_EQ(lost(keys, 0) + lost(keys, 1), 0u);
  const auto more = some_keys("more ", 30);
  put_all(more, 2);
  EXPECT_EQ(lost(more, 0) + lost(more, 1), 0u);
  EXPECT_EQ(led_by(*other_).size(), 3u);
}

}  // namespace
}  // namespace mc::cluster
