// SPDX-License-Identifier: Apache-2.0
//
// Namespaces that come and go, and pools that are resized, while clients hold views.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

class Namespaces : public AgentTest {
 protected:
  void create(const std::string& name, unsigned drop_unused_s = 0) {
    Json::Value request;
    request["drop_unused_s"] = drop_unused_s;
    request["verb"] = "create_namespace";
    request["name"] = name;
    request["pool_bytes"] = Json::UInt64{16 * kMiB};
    request["mode"] = isolated() ? "isolated" : "direct";
    ask(request);
    wait_for_memory();
  }
  void drop(const std::string& name) {
    Json::Value request;
    request["verb"] = "drop_namespace";
    request["name"] = name;
    ask(request);
  }
  mc_client* open_in(const char* name) {
    return open([&](mc_open_options& o) { o.name_space = name; });
  }
  void resize(std::uint64_t bytes) {
    Json::Value request;
    request["verb"] = "resize";
    request["namespace"] = "default";
    request["pool_bytes"] = Json::UInt64{bytes};
    ask(request);
  }
  bool settled(std::uint64_t bytes) {
    Json::Value request;
    request["verb"] = "segments";
    const Json::Value answer = ask(request);
    const Json::Value& segment = answer["segments"][0];
    return segment["settled"].asBool() && segment["reserved_bytes"].asUInt64() == bytes;
  }
};
MC_WITH_AGENT(Namespaces);

TEST_P(Namespaces, NamespacesDoNotSeeEachOthersKeys) {
  serve();
  create("one");
  create("two");
  mc_client* clients[] = {open(), open_in("one"), open_in("two")};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(put(clients[i], "same", "of " + std::to_string(i)), MC_OK);
    ASSERT_EQ(put(clients[i], "only." + std::to_string(i), "x"), MC_OK);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(get(clients[i], "same"), "of " + std::to_string(i));
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(exists(clients[i], "only." + std::to_string(j)), i == j ? MC_OK : MC_NOT_FOUND);
    }
  }
  ASSERT_EQ(remove(clients[1], "same"), MC_OK);
  EXPECT_EQ(get(clients[2], "same"), "of 2");
  // A flood of puts in one namespace does not evict objects of another.
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(put(clients[1], "flood." + std::to_string(i), content("x", 100000)), MC_OK);
  }
  EXPECT_EQ(get(clients[2], "same"), "of 2");
  EXPECT_EQ(get(clients[0], "same"), "of 0");
}

TEST_P(Namespaces, ANamespaceThatAskedForItEndsOnceNoSessionUsesIt) {
  serve();
  create("kept");
  create("used", 1);
  create("unused", 1);
  mc_client* client = open_in("used");
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  until([&] { return tenant("unused").isNull(); });
  agent().kill_hard();
  agent().start();
  EXPECT_EQ(get(client, "key"), "value");
  // The end of this one shows that the time has passed for the agent.
  create("unused", 1);
  until([&] { return tenant("unused").isNull(); });
  EXPECT_EQ(get(client, "key"), "value");
  close(client);
  until([&] { return tenant("used").isNull(); });
  EXPECT_FALSE(tenant("kept").isNull());
}

TEST_P(Namespaces, TwoClientsShareANamespace) {
  serve();
  mc_client* one = open();
  mc_client* two = open();
  ASSERT_EQ(put(one, "key", "value"), MC_OK);
  EXPECT_EQ(get(two, "key"), "value");
  mc_view view{};
  ASSERT_EQ(mc_get_view(two, slice("key"), &view), MC_OK);
  ASSERT_EQ(remove(one, "key"), MC_OK);
  EXPECT_EQ(exists(two, "key"), MC_NOT_FOUND);
  EXPECT_EQ(bytes_of(view), "value");
  mc_view_release(&view);
  mc_client_info a{}, b{};
  a.struct_size = b.struct_size = sizeof a;
  EXPECT_EQ(mc_get_client_info(one, &a), MC_OK);
  EXPECT_EQ(mc_get_client_info(two, &b), MC_OK);
  EXPECT_NE(a.session_id, b.session_id);
  EXPECT_EQ(a.node_id, b.node_id);
}

TEST_P(Namespaces, AQueueOfAnotherClientIsRefused) {
  serve();
  mc_client* one = open();
  mc_client* two = open();
  mc_cq* cq = nullptr;
  mc_group* group = nullptr;
  ASSERT_EQ(mc_cq_create(one, &cq), MC_OK);
  ASSERT_EQ(mc_group_begin(one, &group), MC_OK);
  const mc_slice key = slice("key");
  const mc_put_item item{key, &key, 1, {nullptr, 0}, MC_OK};
  mc_get_item wanted{key, nullptr, 0, 0, 0, MC_OK};
  mc_status status = MC_OK;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_async(two, cq, &item, 1, nullptr, 0, nullptr)));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_get_async(two, cq, &wanted, 1, 0, nullptr)));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_exists_async(two, cq, &key, 1, &status, 0, nullptr)));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_remove_async(two, cq, &key, 1, 0, 0, nullptr)));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_cancel(two, cq, 1)));
  mc_put_options options = put_options();
  options.group = group;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put(two, "key", "value", &options)));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_async(one, cq, &item, 1, &options, 0, nullptr)));
  mc_group_abort(group);
  mc_cq_destroy(cq);
}

TEST_P(Namespaces, DroppingANamespaceEndsItsClientsAndNoOther) {
  serve();
  create("short");
  mc_client* other = open();
  mc_client* client = open_in("short");
  ASSERT_EQ(put(other, "key", "other"), MC_OK);
  ASSERT_EQ(put(client, "key", content("key", 100000)), MC_OK);
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const mc_put_options hard = put_options(MC_PIN_HARD, kSecondNs / 50);
  int stored = 0;
  while (put(client, "hard" + std::to_string(stored), content("x", kMiB / 2), &hard) == MC_OK)
    ++stored;
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice("hard0"), &view), MC_OK);
  const std::string value = content("late", kMiB);
  const mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  const mc_slice piece = slice(value);
  const mc_put_item item{slice("async"), &piece, 1, {nullptr, 0}, MC_OK};
  ASSERT_EQ(mc_put_async(client, cq, &item, 1, &patient, 1, nullptr), MC_OK);
  std::atomic<bool> begun{false};
  std::thread waiting([&] {
    begun = true;
    EXPECT_TRUE(says(MC_SESSION_LOST, put(client, "late", value, &patient)));
  });
  until([&] { return begun.load(); });
  drop("short");
  waiting.join();
  mc_completion completion{};
  std::size_t count = 0;
  ASSERT_EQ(mc_cq_wait(cq, &completion, 1, &count, 60 * kSecondNs), MC_OK);
  EXPECT_EQ(completion.status, MC_SESSION_LOST);
  EXPECT_TRUE(bytes_of(view) == content("x", kMiB / 2)) << "views stay readable";
  EXPECT_TRUE(says(MC_SESSION_LOST, put(client, "more", "value")));
  EXPECT_NE(std::string(mc_last_error()).find("short"), std::string::npos) << mc_last_error();
  EXPECT_TRUE(says(MC_SESSION_LOST, mc_ping(client, 0)));
  mc_view_release(&view);
  mc_cq_destroy(cq);
  EXPECT_EQ(get(other, "key"), "other");
  mc_client* again = nullptr;
  EXPECT_TRUE(says(MC_NO_SUCH_NAMESPACE,
                   try_open(&again, [](mc_open_options& o) { o.name_space = "short"; })));
}

TEST_P(Namespaces, ANamespaceThatIsMadeAnewIsEmpty) {
  serve();
  for (int i = 0; i < 3; ++i) {
    create("again");
    mc_client* client = open_in("again");
    EXPECT_EQ(exists(client, "key"), MC_NOT_FOUND);
    ASSERT_EQ(put(client, "key", "value"), MC_OK);
    close(client);
    drop("again");
  }
}

TEST_P(Namespaces, APoolGrowsWhileItServes) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  const mc_put_options hard = put_options(MC_PIN_HARD, kSecondNs / 50);
  int stored = 0;
  while (put(client, "a" + std::to_string(stored), content("a" + std::to_string(stored), 100000),
             &hard) == MC_OK)
    ++stored;
  resize(64 * kMiB);
  const mc_put_options patient = put_options(MC_PIN_HARD, 60 * kSecondNs);
  for (int i = 0; i < 400; ++i) {
    const std::string key = "b" + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, 100000), &patient), MC_OK) << i << mc_last_error();
  }
  until([&] { return settled(64 * kMiB); });
  for (int i = 0; i < stored; ++i) {
    EXPECT_TRUE(get(client, "a" + std::to_string(i)) == content("a" + std::to_string(i), 100000));
  }
  mc_client_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(mc_get_client_info(client, &info), MC_OK);
  EXPECT_EQ(info.pool_bytes, 64 * kMiB);
}

TEST_P(Namespaces, AShrinkingPoolGetsTheReservationCacheOfIdleClientsBack) {
  serve({{"pool_bytes", "64MiB"}});
  until([&] { return settled(64 * kMiB); });
  std::vector<mc_client*> idle;
  for (int i = 0; i < 4; ++i)
    idle.push_back(open([](mc_open_options& o) { o.staging_bytes = kMiB; }));
  for (int i = 0; i < 100; ++i) {
    for (std::size_t c = 0; c < idle.size(); ++c) {
      // Batches of one size fill the reservation cache.
      const std::string key = std::to_string(c) + "." + std::to_string(i);
      ASSERT_EQ(put(idle[c], key, content(key, 30000)), MC_OK);
    }
  }
  resize(kMiB);
  until([&] { return settled(kMiB); });
  for (std::size_t c = 0; c < idle.size(); ++c) {
    const std::string key = "after." + std::to_string(c);
    EXPECT_EQ(put(idle[c], key, content(key, 30000)), MC_OK) << mc_last_error();
    EXPECT_TRUE(get(idle[c], key) == content(key, 30000));
  }
}

TEST_P(Namespaces, AShrinkUnderWritersOfAllSizesEndsAndLosesNoPut) {
  serve({{"pool_bytes", "64MiB"}});
  until([&] { return settled(64 * kMiB); });
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int w = 0; w < 3; ++w) {
    mc_client* client = open([](mc_open_options& o) { o.staging_bytes = kMiB; });
    writers.emplace_back([client, w, &stop] {
      const std::size_t sizes[] = {300, 5000, 30000, 70000};
      for (int i = 0; !stop; ++i) {
        const std::string key = std::to_string(w) + "." + std::to_string(i);
        const std::string value = content(key, sizes[i % 4]);
        EXPECT_EQ(put(client, key, value), MC_OK) << mc_last_error();
        const auto bytes = get(client, key);
        EXPECT_TRUE(!bytes || *bytes == value) << key;
      }
    });
  }
  for (int round = 0; round < 4; ++round) {
    resize(round % 2 == 0 ? 8 * kMiB : 64 * kMiB);
    until([&] { return settled(round % 2 == 0 ? 8 * kMiB : 64 * kMiB); });
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST_P(Namespaces, AShrinkingPoolNamesTheHoldersOfReservations) {
  if (isolated()) GTEST_SKIP() << "clients of isolated namespaces hold no reservations";
  serve({{"pool_bytes", "64MiB"}});
  until([&] { return settled(64 * kMiB); });
  mc_client* client = open([](mc_open_options& o) { o.label = "holder"; });
  const mc_put_options hard = put_options(MC_PIN_HARD);
  for (int i = 0; i < 8; ++i)
    ASSERT_EQ(put(client, std::to_string(i), content("x", kMiB), &hard), MC_OK);
  mc_reservation* reservation = nullptr;
  ASSERT_EQ(mc_reserve(client, kMiB, 0, &reservation), MC_OK);
  mc_span span{};
  ASSERT_EQ(mc_reservation_spans(reservation, &span, 1), 1u);
  const std::string value = content("kept", kMiB);
  std::memcpy(span.data, value.data(), kMiB);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(remove(client, std::to_string(i)), MC_OK);
  resize(2 * kMiB);
  Json::Value request;
  request["verb"] = "segments";
  Json::Value waits;
  until([&] {
    waits = ask(request)["segments"][0]["waits_for"];
    return waits["sessions"].size() == 1 &&
           waits["sessions"][0]["reserved_bytes"].asUInt64() == kMiB;
  });
  EXPECT_EQ(waits["sessions"][0]["pid"].asInt(), ::getpid());
  EXPECT_EQ(waits["sessions"][0]["label"].asString(), "holder");
  EXPECT_FALSE(settled(2 * kMiB)) << "what a call writes to is waited for";
  ASSERT_EQ(mc_commit(reservation, slice("kept"), kMiB, nullptr), MC_OK) << mc_last_error();
  until([&] { return settled(2 * kMiB); });
  EXPECT_TRUE(get(client, "kept") == value);
}

TEST_P(Namespaces, AClientsPutLimitFollowsThePoolsSize) {
  if (isolated()) GTEST_SKIP() << "what an isolated client may put at once is its staging's size";
  serve({{"pool_bytes", "16MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  until([&] { return settled(16 * kMiB); });
  const std::string value = content("large", 10 * kMiB);
  EXPECT_EQ(put(client, "large", value), MC_TOO_LARGE);
  resize(48 * kMiB);
  until([&] { return settled(48 * kMiB); });
  EXPECT_EQ(put(client, "large", value), MC_OK) << mc_last_error();
}

TEST_P(Namespaces, APoolShrinksUnderViewsAndTraffic) {
  serve({{"pool_bytes", "64MiB"}, {"session_quota_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  mc_client* writer = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  until([&] { return settled(64 * kMiB); });
  for (int i = 0; i < 600; ++i) {
    const std::string key = "key." + std::to_string(i);
    ASSERT_EQ(put(writer, key, content(key, 100000)), MC_OK);
  }
  mc_view views[30] = {};
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(mc_get_view(client, slice("key." + std::to_string(i * 20)), &views[i]), MC_OK);
  }
  resize(16 * kMiB);
  std::atomic<bool> stop{false};
  std::thread traffic([&] {
    for (int i = 0; !stop; ++i) {
      const std::string key = "during." + std::to_string(i);
      EXPECT_EQ(put(writer, key, content(key, 5000)), MC_OK) << mc_last_error();
      const auto bytes = get(client, "key." + std::to_string(i % 600));
      EXPECT_TRUE(!bytes || *bytes == content("key." + std::to_string(i % 600), 100000));
    }
  });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 30; ++i) {
      const std::string key = "key." + std::to_string(i * 20);
      EXPECT_EQ(mc_view_verify(&views[i], slice(key)), MC_OK) << key;
    }
    static_cast<void>(settled(0));
  }
  for (int i = 0; i < 30; ++i) {
    const std::string key = "key." + std::to_string(i * 20);
    EXPECT_TRUE(bytes_of(views[i]) == content(key, 100000));
    mc_view_release(&views[i]);
  }
  stop = true;
  traffic.join();
  until([&] { return settled(16 * kMiB); });
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string key = "key." + std::to_string(i);
    const auto bytes = get(client, key);
    if (!bytes) continue;
    ++found;
    EXPECT_TRUE(*bytes == content(key, 100000)) << key;
  }
  EXPECT_GT(found, 20);
  EXPECT_LE(found, 168);
  // Grow again.
  resize(48 * kMiB);
  until([&] { return settled(48 * kMiB); });
  const mc_put_options hard = put_options(MC_PIN_HARD);
  for (int i = 0; i < 300; ++i) {
    const std::string key = "again." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, 100000), &hard), MC_OK) << i << mc_last_error();
  }
}

}  // namespace
}  // namespace mc::conformance
