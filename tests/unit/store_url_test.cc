// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/store_url.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {
namespace {

StoreUrl good(const std::string& text) {
  const auto url = parse_store_url(text);
  if (!url) throw std::runtime_error(url.error().to_string());
  return *url;
}

std::string refusal(const std::string& text) {
  const auto url = parse_store_url(text);
  if (url) return "";
  EXPECT_EQ(url.error().code(), MC_INVALID_ARGUMENT);
  return std::string(url.error().text());
}

TEST(StoreUrl, FillsInPortsAndPercentEncodedLogins) {
  const StoreUrl url = good("redis://me:p%40ss%3a@a,b:7000,[::1]/3");
  EXPECT_EQ(url.kind, StoreUrl::Kind::kRedis);
  EXPECT_EQ(text_of(url.endpoints), "a:6379,b:7000,[::1]:6379");
  EXPECT_EQ(url.login.user, "me");
  EXPECT_EQ(url.login.password, "p@ss:");
  EXPECT_EQ(url.db, 3u);
  EXPECT_FALSE(url.tls.enabled);
  EXPECT_EQ(good("redis://:secret@a").login.password, "secret");
  EXPECT_EQ(text_of(good("etcd://a,b:1").endpoints), "a:2379,b:1");
  EXPECT_EQ(good("http://a:1/metadata").path, "/metadata");
  EXPECT_TRUE(good("memory://").endpoints.empty());
}

TEST(StoreUrl, ReadsTlsAndSentinelOptions) {
  const StoreUrl url = good(
      "rediss://s1:26379,s2:26379?sentinel=mymaster&sentinel_user=watcher&ca=/x%20y.pem"
      "&cert=/c&key=/k&server_name=redis.example");
  EXPECT_TRUE(url.tls.enabled);
  EXPECT_EQ(url.sentinel_name, "mymaster");
  EXPECT_EQ(url.sentinel_login.user, "watcher");
  EXPECT_EQ(url.tls.ca, "/x y.pem");
  EXPECT_EQ(url.tls.server_name, "redis.example");
  EXPECT_TRUE(good("etcds://a").tls.enabled);
  EXPECT_TRUE(good("redis://a?tls=1").tls.enabled);
}

TEST(StoreUrl, ReadsAPasswordFromAFile) {
  const std::string path = testing::TempDir() + "mc-store-url-secret";
  std::ofstream(path) << "from a file\n";
  const StoreUrl url = good("etcd://a?user=me&password_file=" + path);
  EXPECT_EQ(url.login.user, "me");
  EXPECT_EQ(url.login.password, "from a file");
  std::remove(path.c_str());
  EXPECT_NE(refusal("redis://a?password_file=" + path), "");
}

TEST(StoreUrl, RefusesInvalidUrls) {
  for (const char* text : {"",
                           "redis",
                           "redis:/a",
                           "ftp://a",
                           "redis://",
                           "redis://a:0",
                           "redis://a:65536",
                           "redis://a:x",
                           "redis://a/x",
                           "redis://a/70000",
                           "redis://a,,b",
                           "redis://[::1",
                           "redis://a b",
                           "redis://a?tls=2",
                           "redis://a?tls",
                           "redis://a?colour=red",
                           "redis://a?ca=/x",
                           "rediss://a?cert=/x",
                           "redis://%zz@a",
                           "redis://a%00@b",
                           "etcd://user@a",
                           "etcd://a/path",
                           "etcd://a?sentinel=m",
                           "http://a",
                           "http://a/",
                           "http://a,b/metadata",
                           "http://u:p@a/metadata",
                           "memory://a",
                           "memory://?user=x",
                           "redis://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
  EXPECT_NE(refusal("redis://" + std::string(5000, 'a')), "");
}

TEST(StoreUrl, NoMessageRepeatsASecret) {
  for (const char* text :
       {"redis://me:hunter2@a:b:c", "redis://me:hunter2@a?x=y", "redis://me:hunter2%@a",
        "http://me:hunter2@a/metadata", "nosuch://me:hunter2@a"}) {
    EXPECT_EQ(refusal(text).find("hunter2"), std::string::npos) << text;
    EXPECT_NE(refusal(text), "") << text;
  }
  const auto store = open_cluster_store("redis://me:hunter2@a", "c");
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ((*store)->name(), "redis a:6379");
}

TEST(StoreUrl, AClusterIdIsOneWord) {
  EXPECT_TRUE(open_cluster_store("memory://", "prod-1.eu_west").has_value());
  for (const char* id : {"", "a/b", "a b", "a*"}) {
    EXPECT_FALSE(open_cluster_store("memory://", id).has_value()) << id;
  }
  EXPECT_FALSE(open_cluster_store("memory://", std::string(65, 'a')).has_value());
}

}  // namespace
}  // namespace mc::metadata
