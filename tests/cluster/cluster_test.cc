// SPDX-License-Identifier: Apache-2.0
//
// The cluster as a user sees the cluster, and the objects that are left when a part dies.
#include "cluster/cluster_fixture.h"

#include <json/reader.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <thread>

#include "conformance/store/store_servers.h"
#include "libmc/client/admin.h"

namespace mc::cluster {
namespace {

using conformance::slice;

TEST_F(ClusterTest, AnObjectOfAnySizeIsReadOnEveryOtherHost) {
  start(3);
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{(1 << 20) + 1}, std::size_t{20 << 20}}) {
    const std::string key = "of " + std::to_string(size);
    const std::string value = content(key, size);
    ASSERT_EQ(put(0, key, value), MC_OK) << mc_last_error();
    for (std::size_t reader = 1; reader < 3; ++reader) {
      EXPECT_TRUE(exists(reader, key));
      EXPECT_TRUE(get(reader, key) == value) << key << " at " << reader;
    }
  }
  // The bytes of small objects came with the answers. get() learns the length first, and asks for 4 KiB twice.
  EXPECT_EQ(counter(1, "counters", "came_with_answer"), 3u);
  EXPECT_EQ(get(1, "nobody has it"), "<MC_NOT_FOUND>");
  EXPECT_FALSE(exists(1, "nobody has it"));
  EXPECT_GE(counter(1, "misses", "nobody"), 1u);
}

TEST_F(ClusterTest, AnAgentMayRunTheMasterInsideItself) {
  const std::string address = "127.0.0.1:" + std::to_string(conformance::free_port());
  const AgentOptions shared = {{"pool_bytes", "64MiB"}, {"huge_pages", "off"}};
  for (const char* const option : {"master_listen", "masters"}) {
    options_ = shared;
    options_[option] = address;
    agents_.push_back(std::make_unique<conformance::AgentProcess>());
    start_agent(agents_.size() - 1);
  }
  const std::string value = content("inner", 100'000);
  ASSERT_EQ(put(1, "inner", value), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(0, "inner") == value);

  // The master dies and comes back with the agent. Then the other agent's objects are known again.
  close_clients(0);
  agents_[0]->kill_hard();
  EXPECT_TRUE(get(1, "inner") == value);
  options_ = shared;
  options_["master_listen"] = address;
  start_agent(0);
  EXPECT_TRUE(until([&] { return get(0, "inner") == value; }));
}

TEST_F(ClusterTest, ABatchIsGatheredFromSeveralHosts) {
  start(3);
  constexpr std::size_t kKeys = 300;
  std::vector<std::string> keys, values;
  for (std::size_t i = 0; i < kKeys; ++i) {
    keys.push_back("batch " + std::to_string(i));
    values.push_back(content(keys.back(), 100 + i * 37));
    if (i % 10 == 9) continue;  // not put
    ASSERT_EQ(put(i % 3, keys.back(), values.back()), MC_OK);
  }
  std::vector<mc_slice> names;
  for (const std::string& key : keys) names.push_back(slice(key));
  std::vector<mc_view> views(kKeys);
  std::vector<mc_status> statuses(kKeys);
  mc_get_view_batch(client(1), names.data(), kKeys, views.data(), statuses.data());
  for (std::size_t i = 0; i < kKeys; ++i) {
    if (i % 10 == 9) {
      EXPECT_EQ(statuses[i], MC_NOT_FOUND);
      continue;
    }
    ASSERT_EQ(statuses[i], MC_OK) << keys[i];
    EXPECT_EQ(std::string_view(static_cast<const char*>(views[i].data), views[i].size), values[i]);
    EXPECT_EQ(mc_view_verify(&views[i], names[i]), MC_OK);
    mc_view_release(&views[i]);
  }
  // The questions of a batch to one host share messages: far fewer messages than keys.
  std::vector<mc_status> there(kKeys);
  ASSERT_EQ(mc_exists_batch(client(2), names.data(), kKeys, there.data()), MC_OK);
  for (std::size_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(there[i], i % 10 == 9 ? MC_NOT_FOUND : MC_OK) << keys[i];
  }
}

TEST_F(ClusterTest, AsynchronousGetsGoOnWhileAnotherHostIsAsked) {
  start(2);
  constexpr std::size_t kKeys = 40;
  std::vector<std::string> keys, into;
  for (std::size_t i = 0; i < kKeys; ++i) {
    keys.push_back("async " + std::to_string(i));
    into.push_back(std::string(3000, '?'));
    // The last key is not put.
    if (i + 1 == kKeys) break;
    ASSERT_EQ(put(i % 4 == 0 ? 1 : 0, keys[i], content(keys[i], 3000)), MC_OK);
  }
  std::vector<mc_span> spans;
  for (std::string& buffer : into) spans.push_back({buffer.data(), buffer.size()});
  std::vector<mc_get_item> items;
  std::vector<mc_slice> names;
  for (std::size_t i = 0; i < kKeys; ++i) {
    names.push_back(slice(keys[i]));
    items.push_back({names[i], &spans[i], 1, 0, 0, MC_OK});
  }
  std::vector<mc_status> there(kKeys, MC_INTERNAL);
  mc_cq* queue = nullptr;
  ASSERT_EQ(mc_cq_create(client(1), &queue), MC_OK) << mc_last_error();
  mc_completion done[4];
  std::size_t count = 0;

  agents_[0]->pause(true);
  ASSERT_EQ(mc_get_async(client(1), queue, items.data(), kKeys, 7, nullptr), MC_OK);
  EXPECT_EQ(mc_cq_poll(queue, done, 4), 0u) << "its owner stands still";
  agents_[0]->pause(false);
  ASSERT_EQ(mc_cq_wait(queue, done, 4, &count, kWatchdogNs), MC_OK) << mc_last_error();
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(done[0].user_data, 7u);
  EXPECT_EQ(done[0].item_count, kKeys);
  EXPECT_EQ(done[0].status, MC_NOT_FOUND);
  for (std::size_t i = 0; i + 1 < kKeys; ++i) {
    EXPECT_EQ(items[i].status, MC_OK) << keys[i];
    EXPECT_TRUE(into[i] == content(keys[i], 3000)) << keys[i];
  }
  EXPECT_EQ(items.back().status, MC_NOT_FOUND);

  ASSERT_EQ(mc_exists_async(client(1), queue, names.data(), kKeys, there.data(), 8, nullptr),
            MC_OK);
  ASSERT_EQ(mc_cq_wait(queue, done, 4, &count, kWatchdogNs), MC_OK) << mc_last_error();
  EXPECT_EQ(done[0].status, MC_OK);
  for (std::size_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(there[i], i + 1 < kKeys ? MC_OK : MC_NOT_FOUND) << keys[i];
  }
  mc_cq_destroy(queue);
}

TEST_F(ClusterTest, AnObjectReadTwiceBecomesACopyThatOutlivesItsSource) {
  start(2);
  const std::string value = content("hot", 50'000);
  ASSERT_EQ(put(0, "hot", value), MC_OK);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client(1), slice("hot"), &view), MC_OK);
  EXPECT_EQ(view.fetched, 1u);
  mc_view_release(&view);
  EXPECT_EQ(holders(1, "hot"), 1u);
  EXPECT_TRUE(get(1, "hot") == value);
  EXPECT_TRUE(until([&] { return counter(1, "counters", "copies_kept") == 1; }));
  EXPECT_EQ(holders(1, "hot"), 2u);
  ASSERT_EQ(mc_get_view(client(1), slice("hot"), &view), MC_OK);
  EXPECT_EQ(view.fetched, 0u);
  mc_view_release(&view);
  close_clients(0);
  agents_[0]->pause(true);
  EXPECT_TRUE(get(1, "hot") == value);
}

TEST_F(ClusterTest, ARemovalReachesEveryHolder) {
  start(3);
  const std::string value = content("gone", 5000);
  ASSERT_EQ(put(0, "gone", value), MC_OK);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(get(1, "gone") == value);
    EXPECT_TRUE(get(2, "gone") == value);
  }
  ASSERT_EQ(mc_remove(client(2), slice("gone"), 0), MC_OK) << mc_last_error();
  for (std::size_t agent = 0; agent < 3; ++agent) {
    EXPECT_EQ(get(agent, "gone"), "<MC_NOT_FOUND>") << agent;
  }
  EXPECT_EQ(mc_remove(client(1), slice("gone"), 0), MC_NOT_FOUND);
  const std::string again = content("gone again", 700);
  ASSERT_EQ(put(1, "gone", again), MC_OK);
  EXPECT_EQ(get(0, "gone"), again);
}

TEST_F(ClusterTest, APutOfAKeyThatAnotherHostHoldsChangesNothing) {
  start(3);
  ASSERT_EQ(put(0, "first", "of the first"), MC_OK);
  ASSERT_EQ(put(1, "first", "of the second"), MC_OK);
  for (std::size_t agent = 0; agent < 3; ++agent) EXPECT_EQ(get(agent, "first"), "of the first");
}

TEST_F(ClusterTest, AnUpsertReplacesTheObjectAtEveryHost) {
  start(3);
  ASSERT_EQ(put(0, "value", "old"), MC_OK);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get(1, "value"), "old");
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.upsert = 1;
  ASSERT_EQ(put(2, "value", "new", &options), MC_OK);
  for (std::size_t agent = 0; agent < 3; ++agent) {
    EXPECT_TRUE(until([&] { return get(agent, "value") == "new"; })) << agent;
  }
  ASSERT_EQ(put(0, "value", "newest", &options), MC_OK);
  for (std::size_t agent = 0; agent < 3; ++agent) {
    EXPECT_TRUE(until([&] { return get(agent, "value") == "newest"; })) << agent;
  }
}

TEST_F(ClusterTest, AReplicatedObjectOutlivesItsFirstHost) {
  start(3);
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.replicas = 2;
  const std::string value = content("kept", 300'000);
  ASSERT_EQ(put(0, "kept", value, &options), MC_OK);
  ASSERT_TRUE(until([&] { return holders(1, "kept") == 2; }));
  close_clients(0);
  agents_[0]->kill_hard();
  EXPECT_TRUE(until([&] { return get(1, "kept") == value; }));
  EXPECT_TRUE(until([&] { return get(2, "kept") == value; }));
}

TEST_F(ClusterTest, AMasterThatStartsEmptyLosesNoObject) {
  start(2);
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) {
    keys.push_back("survivor " + std::to_string(i));
    ASSERT_EQ(put(static_cast<std::size_t>(i % 2), keys.back(), content(keys.back(), 400)), MC_OK);
  }
  master_->kill_hard();
  // Local hits and puts still succeed.
  EXPECT_EQ(get(0, keys[0]), content(keys[0], 400));
  EXPECT_EQ(put(0, "meanwhile", "put without a master"), MC_OK);
  master_->start();
  for (std::size_t agent = 0; agent < 2; ++agent) {
    ASSERT_TRUE(until([&] { return ask(agent, "status")["cluster"]["master_ready"].asBool(); }));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(get(1 - i % 2, keys[i]), content(keys[i], 400)) << keys[i];
  }
  EXPECT_EQ(get(1, "meanwhile"), "put without a master");
}

TEST_F(ClusterTest, AnAgentThatWasKilledComesBackWithWhatItHeldUnderTheSameVersions) {
  start(2);
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) {
    keys.push_back("mine " + std::to_string(i));
    ASSERT_EQ(put(0, keys.back(), content(keys.back(), 3000)), MC_OK);
  }
  Json::Value where;
  where["key"] = keys[7];
  const std::uint64_t version = std::stoull(ask(1, "where", where)["version"].asString());
  agents_[0]->kill_hard();
  start_agent(0);
  for (const std::string& key : keys) {
    EXPECT_TRUE(until([&] { return get(1, key) == content(key, 3000); })) << key;
  }
  EXPECT_EQ(std::stoull(ask(1, "where", where)["version"].asString()), version);
}

TEST_F(ClusterTest, AStandbyLeadsOnWhenTheMasterDies) {
  conformance::StoreServer redis(conformance::redis_command());
  const std::string url = "redis://" + redis.host();
  metadata::MasterProcess standby({"--cluster-store", url, "--recover-ms", option_time(300)});
  start(2, {{"cluster_store", url}, {"masters", ""}},
        {"--cluster-store", url, "--recover-ms", option_time(300)});
  ASSERT_EQ(put(0, "before", "the death of a master"), MC_OK);
  // After both masters have been killed once, the standby has led, whichever led first.
  master_->kill_hard();
  EXPECT_TRUE(until([&] { return get(1, "before") == "the death of a master"; }));
  ASSERT_TRUE(until([&] { return ask(0, "status")["cluster"]["master_ready"].asBool(); }));
  ASSERT_EQ(put(0, "after", "it"), MC_OK);
  EXPECT_TRUE(until([&] { return get(1, "after") == "it"; }));
  EXPECT_EQ(get(1, "before"), "the death of a master");
  redis.kill_hard();
  EXPECT_EQ(get(1, "before"), "the death of a master");
}

TEST_F(ClusterTest, StatusAndDoctorSayWhyNoMasterIsThere) {
  start(1);
  EXPECT_NE(mcctl(0, "doctor").find("ok    masters"), std::string::npos) << mcctl(0, "doctor");
  master_->kill_hard();
  const std::string address = master_->address();
  ASSERT_TRUE(until([&] {
    const Json::Value cluster = ask(0, "status")["cluster"];
    return cluster["master_trouble"].asString().find(address) != std::string::npos;
  })) << ask(0, "status").toStyledString();
  const std::string said = mcctl(0, "doctor");
  EXPECT_NE(said.find("fail  masters"), std::string::npos) << said;
  EXPECT_NE(said.find(address), std::string::npos) << said;
  const std::string status = mcctl(0, "cluster status; echo exit status $?");
  EXPECT_NE(status.find("why: "), std::string::npos) << status;
  EXPECT_NE(status.find("exit status 4"), std::string::npos) << status;
}

TEST_F(ClusterTest, AnAgentSaysThatTheClusterStoreIsAway) {
  const int port = conformance::free_port();
  conformance::AgentProcess agent;
  agent.start({{"cluster_store", "redis://127.0.0.1:" + std::to_string(port)}});
  Json::Value request;
  request["verb"] = "status";
  std::string trouble;
  ASSERT_TRUE(until([&] {
    const auto status = client::admin_call(agent.socket(), request, kWatchdogNs);
    if (status) trouble = (*status)["cluster"]["master_trouble"].asString();
    return !trouble.empty();
  }));
  EXPECT_NE(trouble.find(std::to_string(port)), std::string::npos) << trouble;
  EXPECT_TRUE(until([&] {
    return agent.log().find("event=master_unreachable") != std::string::npos;
  })) << agent.log();
}

TEST_F(ClusterTest, AGetAfterExistsAsksTheHoldersThatTheMasterNamedThen) {
  start(3);
  ASSERT_EQ(put(0, "key", content("key", 3000)), MC_OK);
  ASSERT_EQ(put(0, "removed", content("removed", 3000)), MC_OK);
  ASSERT_EQ(put(0, "elsewhere", content("elsewhere", 3000)), MC_OK);
  const auto count = [&](const char* what) {
    return ask(1, "status")["cluster"]["counters"][what].asUInt64();
  };
  for (const char* key : {"key", "removed", "elsewhere"}) ASSERT_TRUE(exists(1, key));
  const auto located = count("located");
  EXPECT_EQ(get(1, "key"), content("key", 3000));
  EXPECT_EQ(count("located"), located);
  EXPECT_EQ(count("holder_hits"), 1u);
  // The remembered holders are only the first hosts to ask.
  ASSERT_EQ(mc_remove(client(0), slice("removed"), kWatchdogNs), MC_OK);
  EXPECT_EQ(get(1, "removed"), "<MC_NOT_FOUND>");
  ASSERT_EQ(mc_remove(client(0), slice("elsewhere"), kWatchdogNs), MC_OK);
  ASSERT_EQ(put(2, "elsewhere", content("anew", 3000)), MC_OK);
  EXPECT_EQ(get(1, "elsewhere"), content("anew", 3000));
  EXPECT_EQ(count("holder_hits"), 3u);
  EXPECT_EQ(count("located"), located + 2);
}

TEST_F(ClusterTest, AHostThatHeldTheLastObjectsIsAskedTogetherWithTheMaster) {
  start(3);
  const auto count = [&](const char* what) { return counter(1, "counters", what); };
  const auto key = [](unsigned number) { return "block " + std::to_string(number); };
  for (unsigned i = 0; i < 10; ++i) {
    ASSERT_EQ(put(0, key(i), content(key(i), 3000)), MC_OK);
    EXPECT_EQ(get(1, key(i)), content(key(i), 3000));
  }
  EXPECT_EQ(count("guesses"), 6u);
  EXPECT_EQ(count("right_guesses"), 6u);
  EXPECT_EQ(count("located"), 10u);
  // get() learns the length first. The second question goes to the known holder.
  EXPECT_EQ(count("asked"), 20u);
  EXPECT_EQ(count("came_with_answer"), 20u);
  // The master names another host, or none.
  ASSERT_EQ(put(2, "elsewhere", content("elsewhere", 3000)), MC_OK);
  EXPECT_EQ(get(1, "elsewhere"), content("elsewhere", 3000));
  EXPECT_EQ(count("guesses"), 7u);
  for (unsigned i = 10; i < 14; ++i) {
    ASSERT_EQ(put(0, key(i), content(key(i), 3000)), MC_OK);
    EXPECT_EQ(get(1, key(i)), content(key(i), 3000));
  }
  EXPECT_EQ(get(1, "nobody has it"), "<MC_NOT_FOUND>");
  EXPECT_EQ(count("guesses"), 8u);
  EXPECT_EQ(count("right_guesses"), 6u);
}

TEST_F(ClusterTest, AnAgentEndsAndSaysWhyWhenANewerProcessJoinsAsItsNode) {
  start(1);
  const Json::Value status = ask(0, "status");
  metadata::MasterClientOptions options;
  options.masters = {master_->address()};
  metadata::HoldingAgent newer(options, std::stoull(status["node_id"].asString()),
                               std::stoull(status["incarnation"].asString()) + 1);
  ASSERT_TRUE(newer.until_ready());
  ASSERT_TRUE(until([&] { return agents_[0]->has_ended(); })) << agents_[0]->log();
  const int ended = agents_[0]->wait_for_end();
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 3) << ended;
  EXPECT_NE(agents_[0]->log().find("event=fenced cause=\"a newer process has joined"),
            std::string::npos)
      << agents_[0]->log();
}

TEST_F(ClusterTest, AnObjectRemovedWhileAHostWasAwayDoesNotComeBackToTheNextLeader) {
  conformance::StoreServer redis(conformance::redis_command());
  const std::string url = "redis://" + redis.host();
  metadata::MasterProcess standby({"--cluster-store", url, "--recover-ms", option_time(300)});
  start(2, {{"cluster_store", url}, {"masters", ""}},
        {"--cluster-store", url, "--recover-ms", option_time(300)});
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.replicas = 2;
  for (const char* key : {"removed", "kept"}) {
    ASSERT_EQ(put(0, key, content(key, 3000), &options), MC_OK);
    ASSERT_TRUE(until([&] { return holders(0, key) == 2; }));
  }
  ASSERT_EQ(put(1, "only there", content("only there", 3000)), MC_OK);
  const auto members = [&] { return ask(0, "status")["cluster"]["members"].asUInt(); };
  const auto ready = [&](std::size_t agent) {
    return ask(agent, "status")["cluster"]["master_ready"].asBool();
  };
  agents_[1]->pause(true);
  ASSERT_TRUE(until([&] { return members() == 1; }));
  ASSERT_EQ(mc_remove(client(0), slice("removed"), kWatchdogNs), MC_OK);
  // After both masters have been killed once, the standby has led, whichever led first.
  master_->kill_hard();
  ASSERT_TRUE(until([&] { return ready(0); }));
  master_->start();
  standby.kill_hard();
  ASSERT_TRUE(until([&] { return ready(0) && get(0, "kept") != "<MC_NOT_FOUND>"; }));
  agents_[1]->pause(false);
  ASSERT_TRUE(until([&] { return members() == 2 && ready(1); }));
  EXPECT_TRUE(until([&] { return get(1, "removed") == "<MC_NOT_FOUND>"; }));
  EXPECT_EQ(get(0, "removed"), "<MC_NOT_FOUND>");
  EXPECT_TRUE(until([&] { return get(1, "kept") == content("kept", 3000); }));
  EXPECT_TRUE(until([&] { return get(0, "only there") == content("only there", 3000); }));
}

TEST_F(ClusterTest, AViewOfAFetchedObjectStaysWhenItsSourceIsRemovedAndItsHostDies) {
  start(2);
  const std::string value = content("lent", 200'000);
  ASSERT_EQ(put(0, "lent", value), MC_OK);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client(1), slice("lent"), &view), MC_OK);
  ASSERT_EQ(mc_remove(client(1), slice("lent"), 0), MC_OK);
  close_clients(0);
  agents_[0]->kill_hard();
  // Fill the pool beyond capacity: pinned memory is not reused.
  for (int i = 0; i < 300; ++i) {
    const std::string key = "fill " + std::to_string(i);
    ASSERT_EQ(put(1, key, content(key, 400'000)), MC_OK) << mc_last_error();
  }
  EXPECT_TRUE(std::string_view(static_cast<const char*>(view.data), view.size) == value);
  EXPECT_EQ(mc_view_verify(&view, slice("lent")), MC_OK);
  mc_view_release(&view);
}

TEST_F(ClusterTest, MemoryOfAFetchedObjectIsFreedWhenItsReaderIsGone) {
  start(2);
  for (int i = 0; i < 20; ++i) {
    const std::string key = "lent " + std::to_string(i);
    ASSERT_EQ(put(0, key, content(key, 1 << 20)), MC_OK);
    mc_view view{};
    ASSERT_EQ(mc_get_view(client(1), slice(key), &view), MC_OK);
  }
  const auto used = [&] { return ask(1, "status")["namespaces"][0]["used_bytes"].asUInt64(); };
  EXPECT_GE(used(), 20u << 20);
  close_clients(1);
  EXPECT_TRUE(until([&] { return used() == 0; }));
}

TEST_F(ClusterTest, NamespacesAreKeptApart) {
  start(2);
  for (std::size_t agent = 0; agent < 2; ++agent) {
    Json::Value request;
    request["name"] = "tenant";
    request["pool_bytes"] = Json::UInt64{16 << 20};
    request["clustered"] = true;
    ASSERT_FALSE(ask(agent, "create_namespace", request).isMember("error"));
  }
  ASSERT_EQ(put(0, "key", "of default"), MC_OK);
  ASSERT_EQ(mc_put(client(0, "tenant"), slice("key"), slice("of tenant"), nullptr), MC_OK);
  char bytes[32] = {};
  std::size_t length = 0;
  ASSERT_EQ(mc_get(client(1, "tenant"), slice("key"), bytes, sizeof bytes, &length), MC_OK);
  EXPECT_EQ(std::string(bytes, length), "of tenant");
  EXPECT_EQ(get(1, "key"), "of default");
  ASSERT_EQ(mc_remove(client(1, "tenant"), slice("key"), 0), MC_OK);
  EXPECT_EQ(get(1, "key"), "of default");
}

TEST_F(ClusterTest, ANamespaceMayGoWhileObjectsAreFetchedIntoIt) {
  start(2);
  const std::string value(24 * kMiB, 'v');
  for (int round = 0; round < 5; ++round) {
    for (std::size_t agent = 0; agent < 2; ++agent) {
      Json::Value request;
      request["name"] = "short";
      request["pool_bytes"] = Json::UInt64{128 << 20};
      request["clustered"] = true;
      ASSERT_FALSE(ask(agent, "create_namespace", request).isMember("error"));
    }
    ASSERT_EQ(mc_put(client(0, "short"), slice("large"), slice(value), nullptr), MC_OK);
    std::string bytes(value.size(), ' ');
    std::thread reader([&, from = client(1, "short")] {
      // The get succeeds, or the namespace is gone.
      std::size_t length = 0;
      static_cast<void>(mc_get(from, slice("large"), bytes.data(), bytes.size(), &length));
    });
    ::usleep(static_cast<useconds_t>(2000 * round));  // each round meets another stage of the read
    Json::Value request;
    request["name"] = "short";
    EXPECT_FALSE(ask(1, "drop_namespace", request).isMember("error"));
    reader.join();
    close_clients(1);
    close_clients(0);
    EXPECT_FALSE(ask(0, "drop_namespace", request).isMember("error"));
    ASSERT_EQ(put(0, "key" + std::to_string(round), "of default"), MC_OK);
    EXPECT_EQ(get(1, "key" + std::to_string(round)), "of default");
  }
}

TEST_F(ClusterTest, RailsCountTheirBytes) {
  start(2);
  const std::string value(4 * kMiB, 'r');
  ASSERT_EQ(put(0, "carried", value), MC_OK);
  EXPECT_TRUE(ask(1, "rails")["peers"].empty());
  ASSERT_EQ(get(1, "carried"), value);
  const Json::Value rails = ask(1, "rails");
  EXPECT_GE(rails["read_bytes"].asUInt64(), value.size());
  ASSERT_EQ(rails["peers"].size(), 1u);
  EXPECT_TRUE(rails["peers"][0]["reachable"].asBool());
  std::uint64_t carried = 0;
  for (const Json::Value& rail : rails["peers"][0]["rails"]) {
    carried += rail["done_bytes"].asUInt64();
    const bool used = rail["done_slices"].asUInt64() > 0;
    EXPECT_TRUE(!used || rail["health"].asString() == "up") << rail.toStyledString();
  }
  EXPECT_GE(carried, value.size());
}

TEST_F(ClusterTest, McctlStatSaysWhetherTheObjectIsHere) {
  start(2);
  ASSERT_EQ(put(0, "there", content("there", 5000)), MC_OK);
  const auto document = [&](std::size_t agent) {
    Json::Value found;
    std::istringstream(mcctl(agent, "stat there --json")) >> found;
    return found;
  };
  EXPECT_TRUE(document(0)["here"].asBool());
  EXPECT_EQ(document(0)["extents"].asUInt(), 1u);
  EXPECT_FALSE(document(1)["here"].asBool());
  EXPECT_EQ(document(1)["length"].asUInt(), 5000u);
  EXPECT_FALSE(document(1).isMember("version"));
  const std::string text = mcctl(1, "stat there");
  EXPECT_NE(text.find("(5,000 bytes)\npool      no"), std::string::npos) << text;
  EXPECT_NE(mcctl(1, "stat none").find("no object has this key"), std::string::npos);
}

TEST_F(ClusterTest, StatTellsTheLengthOfAnObjectOfAnotherHost) {
  start(2);
  const std::string value = content("there", 5000);
  ASSERT_EQ(put(0, "there", value), MC_OK);
  ASSERT_EQ(put(1, "here", "value"), MC_OK);
  const mc_slice keys[] = {slice("there"), slice("none"), slice("here")};
  mc_stat_info infos[3] = {};
  mc_status statuses[3] = {};
  for (mc_stat_info& info : infos) {
    info.struct_size = sizeof info;
    info.version = 99;
  }
  EXPECT_EQ(mc_stat_batch(client(1), keys, 3, infos, statuses), MC_NOT_FOUND);
  EXPECT_EQ(statuses[0], MC_OK);
  EXPECT_EQ(infos[0].length, value.size());
  EXPECT_EQ(infos[0].extent_count, 0u) << "none of it is here";
  EXPECT_EQ(infos[0].version, 0u);
  EXPECT_EQ(infos[0].struct_size, sizeof infos[0]);
  EXPECT_EQ(statuses[1], MC_NOT_FOUND);
  EXPECT_EQ(statuses[2], MC_OK);
  EXPECT_EQ(infos[2].length, 5u);
  EXPECT_EQ(infos[2].extent_count, 1u);
  // stat fetches nothing. After a fetch, the object still belongs to the other host.
  EXPECT_EQ(counter(1, "counters", "fetches"), 0u);
  EXPECT_TRUE(get(1, "there") == value);
  // Without a master, stat uses the remembered location until the lease ends.
  master_->kill_hard();
  mc_stat_info again{};
  again.struct_size = sizeof again;
  EXPECT_TRUE(until([&] { return mc_stat(client(1), slice("there"), &again) == MC_NO_MASTER; }));
}

// The default serves the objects, and "miss" is for clients that must never read a replaced object.
TEST_F(ClusterTest, AHostThatItsMasterDoesNotHearServesItsOwnObjectsUnlessTheNamespaceForbidsIt) {
  start(1, {{"reads_without_lease", "miss"}});
  options_.erase("reads_without_lease");
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  agents_.back()->start(options_);
  wait_until_joined();
  for (const std::size_t agent : {0u, 1u}) {
    ASSERT_EQ(put(agent, "key " + std::to_string(agent), "value"), MC_OK);
    EXPECT_EQ(get(agent, "key " + std::to_string(agent)), "value");
  }
  master_->pause(true);
  EXPECT_TRUE(until([&] { return get(0, "key 0") == "<MC_NO_MASTER>"; })) << get(0, "key 0");
  EXPECT_FALSE(exists(0, "key 0"));
  EXPECT_EQ(get(1, "key 1"), "value");
  master_->pause(false);
  EXPECT_TRUE(until([&] { return get(0, "key 0") == "value"; }));
}

}  // namespace
}  // namespace mc::cluster
