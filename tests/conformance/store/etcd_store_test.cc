// SPDX-License-Identifier: Apache-2.0
//
// Special cases of the cluster store in etcd: users, TLS, several endpoints, whole seconds.
#include "conformance/store/store_fixture.h"
#include "metadata/store/etcd/base64.h"
#include "metadata/store/http/http_client.h"

namespace mc::conformance {
namespace {

using metadata::kNoLease;

// With root (hunter2) and a user mc (hunter2) who may only use keys below mc/test/.
void demand_logins(const std::string& base) {
  metadata::HttpClient client{{}};
  const auto ask = [&](const std::string& path, const std::string& body) {
    until_holds([&] {
      const auto answer =
          client.call({"POST", base + "/v3/auth" + path, body, {}}, 1 << 20, soon());
      return answer.has_value() && answer->status == 200;
    });
  };
  ask("/user/add", R"({"name":"root","password":"hunter2"})");
  ask("/role/add", R"({"name":"root"})");
  ask("/user/grant", R"({"user":"root","role":"root"})");
  ask("/user/add", R"({"name":"mc","password":"hunter2"})");
  ask("/role/add", R"({"name":"mc"})");
  ask("/role/grant", R"({"name":"mc","perm":{"permType":"READWRITE","key":")" +
                         metadata::base64("mc/test/") + R"(","range_end":")" +
                         metadata::base64("mc/test0") + R"("}})");
  ask("/user/grant", R"({"user":"mc","role":"mc"})");
  ask("/enable", "{}");
}

TEST(EtcdStore, LogsInAsAUserAndAgainWhenItsTokenIsStale) {
  StoreServer server(etcd_command());
  demand_logins("http://" + server.host());
  const std::string url = "etcd://mc:hunter2@" + server.host();
  const auto store = open_store(url);
  const auto put = store->put("a", "1", kNoLease, soon());
  ASSERT_TRUE(put.has_value()) << put.error().to_string();
  EXPECT_EQ(code_of_put("etcd://" + server.host()), MC_PERMISSION_DENIED);
  EXPECT_EQ(code_of_put("etcd://mc:wrong@" + server.host()), MC_PERMISSION_DENIED);
  EXPECT_EQ(code_of_put("etcd://nobody:hunter2@" + server.host()), MC_PERMISSION_DENIED);
  const auto elsewhere = open_store(url, "other")->put("a", "1", kNoLease, soon());
  EXPECT_EQ(elsewhere.error().code(), MC_PERMISSION_DENIED) << elsewhere.error().to_string();
  // A token does not outlive the issuing server.
  server.kill_hard();
  server.start();
  ASSERT_TRUE(store->put("a", "2", kNoLease, soon()).has_value());
  const auto lease = store->grant_lease(2000, soon());
  ASSERT_TRUE(lease.has_value()) << lease.error().to_string();
  EXPECT_TRUE(store->keep_alive(lease->id, soon()).ok());
  EXPECT_TRUE(store->revoke(lease->id, soon()).ok());
}

TEST(EtcdStore, SaysWhenItsUserMeetsAServerWithoutUsers) {
  const StoreServer server(etcd_command());
  const auto get = open_store("etcd://mc:hunter2@" + server.host())->get("a", soon());
  EXPECT_EQ(get.error().code(), MC_UNSUPPORTED) << get.error().to_string();
}

TEST(EtcdStore, SpeaksTls) {
  const TempDirectory directory;
  const Certificates ours(directory);
  const TempDirectory elsewhere;
  const Certificates theirs(elsewhere);
  const StoreServer server(
      etcd_command({"--cert-file=" + ours.cert, "--key-file=" + ours.key}, true));
  const auto store = open_store("etcds://" + server.host() + "?ca=" + ours.ca);
  const auto put = store->put("a", "1", kNoLease, soon());
  ASSERT_TRUE(put.has_value()) << put.error().to_string();
  EXPECT_EQ(store->get("a", soon())->value, "1");
  EXPECT_EQ(code_of_put("etcds://" + server.host() + "?ca=" + theirs.ca), MC_PERMISSION_DENIED);
  EXPECT_EQ(code_of_put("etcds://" + server.host()), MC_PERMISSION_DENIED);
  EXPECT_NE(code_of_put("etcd://" + server.host(), at_once()), MC_OK);
}

TEST(EtcdStore, TriesItsEndpointsInTurn) {
  const StoreServer server(etcd_command());
  const auto store = open_store("etcd://127.0.0.1:" + std::to_string(free_port()) + "," +
                                server.host() + ",127.0.0.1:" + std::to_string(free_port()));
  for (int i = 0; i < 3; ++i) {
    const auto put = store->put("a", std::to_string(i), kNoLease, soon());
    ASSERT_TRUE(put.has_value()) << put.error().to_string();
  }
}

TEST(EtcdStore, SaysHowLongALeaseReallyIs) {
  // The shortest lease depends on the time of an election, whatever the speed of the machine.
  const StoreServer server(etcd_command({"--heartbeat-interval=50", "--election-timeout=500"}));
  const auto store = open_store("etcd://" + server.host());
  EXPECT_EQ(store->grant_lease(1500, soon())->ttl_ms, 2000u);
  EXPECT_EQ(store->grant_lease(7001, soon())->ttl_ms, 8000u);
}

TEST(EtcdStore, AnotherKindOfServerIsRecognised) {
  const StoreServer http(metadata_command());
  const auto get = open_store("etcd://" + http.host())->get("a", at_once());
  EXPECT_NE(get.error().code(), MC_NOT_FOUND) << get.error().to_string();
  const StoreServer redis(redis_command());
  const auto other = open_store("etcd://" + redis.host())->get("a", at_once());
  EXPECT_FALSE(other.has_value());
}

TEST(HttpStore, AWrongPathIsNamed) {
  const StoreServer server(metadata_command());
  const auto put =
      open_store("http://" + server.host() + "/elsewhere")->put("a", "1", kNoLease, soon());
  EXPECT_EQ(put.error().code(), MC_UNSUPPORTED) << put.error().to_string();
}

}  // namespace
}  // namespace mc::conformance
