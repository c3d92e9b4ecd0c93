// SPDX-License-Identifier: Apache-2.0
//
// Special cases of the cluster store in Redis: logins, TLS, replicas, sentinels, lost data.
#include <fstream>

#include "conformance/store/store_fixture.h"

namespace mc::conformance {
namespace {

using metadata::kNoLease;

// Whether the store is unavailable for this reason. If the deadline passes first, the call fails
// for another reason.
template <typename Value>
bool is_unavailable_for(const char* reason, const Result<Value>& answer) {
  EXPECT_FALSE(answer.has_value());
  return !answer && answer.error().code() == metadata::kStoreUnavailable &&
         answer.error().text().find(reason) != std::string::npos;
}

std::string config_value(int port, const std::string& section, const std::string& name) {
  const std::string text = redis_cli(port, {"info", section});
  const std::size_t at = text.find(name + ":");
  return at == std::string::npos ? "" : text.substr(at, text.find('\r', at) - at);
}

// A replica that holds all data of the master.
void make_replica(const StoreServer& replica, const StoreServer& master) {
  redis_cli(replica.port(), {"replicaof", "127.0.0.1", std::to_string(master.port())});
  until_holds([&] {
    return config_value(replica.port(), "replication", "master_link_status") ==
           "master_link_status:up";
  });
}

TEST(RedisStore, WantsThePasswordOfTheServer) {
  const StoreServer server(redis_command({"--requirepass", "hunter2"}));
  EXPECT_EQ(code_of_put("redis://:hunter2@" + server.host()), MC_OK);
  EXPECT_EQ(code_of_put("redis://:hunter22@" + server.host()), MC_PERMISSION_DENIED);
  EXPECT_EQ(code_of_put("redis://" + server.host()), MC_PERMISSION_DENIED);
  const StoreServer open(redis_command());
  EXPECT_EQ(code_of_put("redis://:hunter2@" + open.host()), MC_PERMISSION_DENIED);
}

// The commands and keys in metadata/README.md are sufficient.
TEST(RedisStore, WorksAsAUserWithTheRightsOfTheReadmeAndNoMore) {
  const StoreServer server(redis_command());
  std::vector<std::string> rule = {"acl", "setuser", "mc", "on", ">hunter2", "~mc/test/*"};
  for (const char* command :
       {"evalsha", "eval", "persist", "time", "hget", "hset", "hsetnx", "hmget", "hdel", "sadd",
        "srem", "smembers", "zadd", "zrem", "zscore", "zrangebyscore", "zrangebylex", "del"}) {
    rule.push_back(std::string("+") + command);
  }
  redis_cli(server.port(), rule);
  const auto store = open_store("redis://mc:hunter2@" + server.host());
  const auto lease = store->grant_lease(60000, soon());
  ASSERT_TRUE(lease.has_value()) << lease.error().to_string();
  EXPECT_TRUE(store->list("", soon())->empty());
  ASSERT_TRUE(store->put("a", "1", lease->id, soon()).has_value());
  ASSERT_TRUE(store->keep_alive(lease->id, soon()).ok());
  ASSERT_TRUE(store->revoke(lease->id, soon()).ok());
  EXPECT_EQ(store->remove("a", soon()).code(), MC_NOT_FOUND);
  const auto elsewhere =
      open_store("redis://mc:hunter2@" + server.host(), "other")->get("a", soon());
  EXPECT_EQ(elsewhere.error().code(), MC_PERMISSION_DENIED) << elsewhere.error().to_string();
  EXPECT_EQ(code_of_put("redis://mc:wrong@" + server.host()), MC_PERMISSION_DENIED);
  redis_cli(server.port(), {"acl", "setuser", "mc", "-hset"});
  EXPECT_EQ(store->put("a", "1", kNoLease, soon()).error().code(), MC_PERMISSION_DENIED);
}

TEST(RedisStore, UsesTheDatabaseOfTheUrl) {
  const StoreServer server(redis_command());
  ASSERT_EQ(code_of_put("redis://" + server.host() + "/3"), MC_OK);
  EXPECT_EQ(open_store("redis://" + server.host())->get("a", soon()).error().code(), MC_NOT_FOUND);
  EXPECT_TRUE(open_store("redis://" + server.host() + "/3")->get("a", soon()).has_value());
  EXPECT_NE(code_of_put("redis://" + server.host() + "/99", at_once()), MC_OK);
}

TEST(RedisStore, SpeaksTlsWithCertificatesOnBothSides) {
  const TempDirectory directory;
  const Certificates ours(directory);
  const TempDirectory elsewhere;
  const Certificates theirs(elsewhere);
  const StoreServer server([&](const std::string& home, int port) {
    return redis_command({"--port", "0", "--tls-port", std::to_string(port), "--tls-cert-file",
                          ours.cert, "--tls-key-file", ours.key, "--tls-ca-cert-file", ours.ca,
                          "--tls-auth-clients", "yes"})(home, port);
  });
  const std::string us = "&cert=" + ours.cert + "&key=" + ours.key;
  const std::string url = "rediss://" + server.host() + "?ca=" + ours.ca + us;
  EXPECT_EQ(code_of_put(url), MC_OK);
  EXPECT_EQ(code_of_put("redis://localhost:" + std::to_string(server.port()) +
                        "?tls=1&ca=" + ours.ca + us),
            MC_OK);
  const auto store = open_store(url);
  const std::string value(metadata::kMaxStoreValueBytes, 'v');
  ASSERT_TRUE(store->put("long", value, kNoLease, soon()).has_value());
  EXPECT_EQ(store->get("long", soon())->value, value);
  // An unknown authority, a wrong server name, a missing client certificate, and no encryption.
  EXPECT_EQ(code_of_put("rediss://" + server.host() + "?ca=" + theirs.ca + us),
            MC_PERMISSION_DENIED);
  EXPECT_EQ(code_of_put(url + "&server_name=elsewhere.example"), MC_PERMISSION_DENIED);
  EXPECT_NE(code_of_put("rediss://" + server.host() + "?ca=" + ours.ca, at_once()), MC_OK);
  EXPECT_NE(code_of_put("redis://" + server.host(), at_once()), MC_OK);
}

TEST(RedisStore, AnUnusableCertificateFileIsNamed) {
  const TempDirectory directory;
  const std::string file = directory.file("ca.pem", "not PEM\n");
  try {
    open_store("rediss://127.0.0.1:1?ca=" + file);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos);
  }
}

TEST(RedisStore, FindsTheOneOfAReplicaSetThatTakesWrites) {
  const StoreServer one(redis_command());
  const StoreServer two(redis_command());
  make_replica(one, two);
  const auto store = open_store("redis://" + one.host() + "," + two.host());
  const auto first = store->put("a", "1", kNoLease, soon());
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  until_holds([&] { return redis_cli(one.port(), {"exists", "mc/test/entry/a"}) == "1\n"; });
  // The roles change while connections to both servers are open.
  redis_cli(one.port(), {"replicaof", "no", "one"});
  make_replica(two, one);
  const auto second = store->put("a", "2", kNoLease, soon());
  ASSERT_TRUE(second.has_value()) << second.error().to_string();
  EXPECT_GT(*second, *first);
  EXPECT_EQ(store->get("a", soon())->value, "2");
}

TEST(RedisStore, AReplicaAloneServesNeitherWritesNorOldReads) {
  const StoreServer master(redis_command());
  const StoreServer replica(redis_command());
  ASSERT_EQ(code_of_put("redis://" + master.host()), MC_OK);
  make_replica(replica, master);
  const auto store = open_store("redis://" + replica.host());
  EXPECT_EQ(store->get("a", at_once()).error().code(), metadata::kStoreUnavailable);
  until_holds(
      [&] { return is_unavailable_for("READONLY", store->put("a", "2", kNoLease, at_once())); });
}

TEST(RedisStore, FollowsItsSentinelsThroughAFailover) {
  StoreServer one(redis_command());
  StoreServer two(redis_command());
  make_replica(two, one);
  const StoreServer sentinel([&](const std::string& home, int port) {
    std::ofstream(home + "/sentinel.conf")
        << "port " << port << "\nbind 127.0.0.1\nsentinel monitor mine 127.0.0.1 " << one.port()
        << " 1\nsentinel down-after-milliseconds mine 500\nsentinel failover-timeout mine 2000\n";
    return std::vector<std::string>{"redis-sentinel", home + "/sentinel.conf"};
  });
  // The first server is down, so the client asks the next server.
  const auto store = open_store("redis://127.0.0.1:" + std::to_string(free_port()) + "," +
                                sentinel.host() + "?sentinel=mine");
  const auto first = store->put("a", "1", kNoLease, soon());
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  until_holds([&] { return redis_cli(two.port(), {"exists", "mc/test/entry/a"}) == "1\n"; });
  until_holds([&] {
    return redis_cli(sentinel.port(), {"sentinel", "replicas", "mine"}).find("slave") !=
           std::string::npos;
  });
  one.kill_hard();
  const auto second = store->put("a", "2", kNoLease, soon());
  ASSERT_TRUE(second.has_value()) << second.error().to_string();
  EXPECT_GT(*second, *first);
  EXPECT_EQ(open_store("redis://" + two.host())->get("a", soon())->value, "2");
  const auto unknown = open_store("redis://" + sentinel.host() + "?sentinel=nobody");
  until_holds([&] { return is_unavailable_for("sentinel=", unknown->get("a", at_once())); });
}

TEST(RedisStore, TellsHowTheServerMayLoseAcknowledgedWrites) {
  const StoreServer master(redis_command());
  const auto store = open_store("redis://" + master.host());
  const auto alone = store->risk_of_loss(soon());
  ASSERT_TRUE(alone.has_value()) << alone.error().to_string();
  EXPECT_NE(alone->find("no replica"), std::string::npos) << *alone;
  const StoreServer replica(redis_command());
  make_replica(replica, master);
  const auto lax = store->risk_of_loss(soon());
  ASSERT_FALSE(lax.has_value());
  EXPECT_EQ(lax.error().code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(lax.error().text().find("min-replicas-to-write 1"), std::string::npos);
  redis_cli(master.port(), {"config", "set", "min-replicas-to-write", "1"});
  EXPECT_EQ(*store->risk_of_loss(soon()), "");
  redis_cli(master.port(), {"acl", "setuser", "mc", "on", ">hunter2", "~*", "+@all", "-info"});
  const auto unknown = open_store("redis://mc:hunter2@" + master.host())->risk_of_loss(soon());
  ASSERT_TRUE(unknown.has_value()) << unknown.error().to_string();
  EXPECT_NE(unknown->find("may not run INFO"), std::string::npos);
}

TEST(RedisStore, NoEpochComesTwiceAfterALossOfData) {
  const StoreServer server(redis_command());
  const auto store = open_store("redis://" + server.host());
  const auto lease = store->grant_lease(60000, soon());
  const auto before = store->put("a", "1", lease->id, soon());
  redis_cli(server.port(), {"flushall"});
  EXPECT_EQ(store->keep_alive(lease->id, soon()).code(), MC_NOT_FOUND);
  const auto again = store->grant_lease(60000, soon());
  EXPECT_GT(again->id, lease->id);
  const auto after = store->put("b", "1", kNoLease, soon());
  ASSERT_TRUE(after.has_value());
  EXPECT_GT(*after, *before);
}

TEST(RedisStore, WorksAfterTheServerForgotTheScript) {
  const StoreServer server(redis_command());
  const auto store = open_store("redis://" + server.host());
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  redis_cli(server.port(), {"script", "flush"});
  EXPECT_EQ(store->get("a", soon())->value, "1");
}

TEST(RedisStore, AFullServerSaysSo) {
  const StoreServer server(redis_command());
  const auto store = open_store("redis://" + server.host());
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  redis_cli(server.port(), {"config", "set", "maxmemory", "1"});
  const auto put = store->put("b", std::string(1000, 'b'), kNoLease, soon());
  ASSERT_FALSE(put.has_value());
  EXPECT_EQ(put.error().code(), MC_NO_SPACE) << put.error().to_string();
  EXPECT_EQ(store->get("a", soon())->value, "1");
  EXPECT_EQ(store->get("b", soon()).error().code(), MC_NOT_FOUND);
  EXPECT_TRUE(store->remove("a", soon()).ok());
  redis_cli(server.port(), {"config", "set", "maxmemory", "0"});
  EXPECT_TRUE(store->put("b", "1", kNoLease, soon()).has_value());
}

TEST(RedisStore, AnotherKindOfServerIsRecognised) {
  const StoreServer server(metadata_command());
  const auto get = open_store("redis://" + server.host())->get("a", soon());
  EXPECT_EQ(get.error().code(), MC_CORRUPT) << get.error().to_string();
}

}  // namespace
}  // namespace mc::conformance
