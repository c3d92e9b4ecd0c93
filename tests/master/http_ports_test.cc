// SPDX-License-Identifier: Apache-2.0
//
// The HTTP ports of real masters, with agents that hold objects. Paths, codes and field names are as
// in Mooncake 0.3.13.
#include <curl/curl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <json/json.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>

#include "conformance/store/store_servers.h"
#include "conformance/transport/authority.h"
#include "master/master_host.h"
#include "metadata/master/http/metadata_pages.h"

namespace mc::metadata {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct HttpReply {
  long status = 0;
  std::string body;
  std::string next_cursor;
};

std::size_t append(char* bytes, std::size_t size, std::size_t count, void* to) {
  static_cast<std::string*>(to)->append(bytes, size * count);
  return size * count;
}

HttpReply ask(const std::string& url, const std::string& method = "GET",
              const std::string& body = "") {
  HttpReply reply;
  std::string head;
  const std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> curl(::curl_easy_init(),
                                                                   ::curl_easy_cleanup);
  ::curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method.c_str());
  if (!body.empty()) ::curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
  ::curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, static_cast<long>(kWatchdogNs / 1'000'000'000));
  ::curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, append);
  ::curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &reply.body);
  ::curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, append);
  ::curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &head);
  const CURLcode code = ::curl_easy_perform(curl.get());
  EXPECT_EQ(code, CURLE_OK) << url << ": " << ::curl_easy_strerror(code);
  ::curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  const std::string field = "X-Next-Cursor: ";
  if (const auto at = head.find(field); at != std::string::npos) {
    const std::size_t begin = at + field.size();
    reply.next_cursor = head.substr(begin, head.find('\r', begin) - begin);
  }
  return reply;
}

Json::Value parsed(const HttpReply& reply) {
  Json::Value value;
  std::istringstream text(reply.body);
  EXPECT_TRUE(text >> value) << reply.body;
  return value;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  std::ranges::sort(all);
  return all;
}

// A master with an HTTP port for the administration.
class HttpMaster {
 public:
  explicit HttpMaster(std::vector<std::string> flags = {}) : port_(conformance::free_port()) {
    flags.insert(flags.end(),
                 {"--http-listen", "127.0.0.1:" + std::to_string(port_), "--recover-ms", "0"});
    master_.emplace(flags);
  }
  HttpReply get(const std::string& target) const {
    return ask("http://127.0.0.1:" + std::to_string(port_) + target);
  }
  Json::Value get_json(const std::string& target) const { return parsed(get(target)); }
  HttpReply post(const std::string& target, const std::string& body = "") const {
    return ask("http://127.0.0.1:" + std::to_string(port_) + target, "POST", body);
  }
  std::string address() const { return master_->address(); }
  MasterProcess& process() { return *master_; }
  // The pages follow the leadership within a moment.
  bool until_role(const std::string& role) const {
    return until([&] { return get("/role").body == role; });
  }

 private:
  int port_;
  std::optional<MasterProcess> master_;
};

MasterClientOptions members_of(const std::vector<std::string>& masters) {
  MasterClientOptions options;
  options.masters = masters;
  return options;
}

constexpr const char* kTenant = "tenant_id=ns";

TEST(HttpPorts, TellTheRoleAndTheState) {
  const HttpMaster master;
  ASSERT_TRUE(master.until_role("leader"));
  ASSERT_TRUE(until([&] { return master.get("/ha_status").body == "serving"; }));
  const Json::Value health = master.get_json("/health");
  EXPECT_EQ(health["status"], "ok");
  EXPECT_EQ(health["role"], "leader");
  EXPECT_EQ(health["ha_state"], "serving");
  EXPECT_EQ(health["service_ready"], true);
  const Json::Value leader = master.get_json("/leader");
  EXPECT_EQ(leader["present"], true);
  EXPECT_EQ(leader["leader_address"], master.address());
  EXPECT_GT(leader["view_version"].asUInt64(), 0u);
  EXPECT_EQ(master.get("/nothing").status, 404);
}

TEST(HttpPorts, ShowTheSegments) {
  const HttpMaster master;
  ASSERT_TRUE(master.until_role("leader"));
  EXPECT_EQ(master.get("/get_all_segments").body, "");
  HoldingAgent agent(members_of({master.address()}), 1);
  ASSERT_TRUE(agent.until_ready());
  ASSERT_TRUE(until([&] { return master.get("/get_all_segments").body == "127.0.0.1:9\n"; }));
  const Json::Value detail = master.get_json("/get_segments_detail");
  EXPECT_EQ(detail["total_segments"], 1);
  const Json::Value& one = detail["segments"][0];
  EXPECT_EQ(one["segment_name"], "127.0.0.1:9");
  EXPECT_EQ(one["segment_id"], "1-1");
  EXPECT_EQ(one["size_bytes"].asUInt64(), 1ull << 30);
  EXPECT_EQ(one["size_human"], "1 GiB");
  EXPECT_EQ(one["status"], "OK");
  EXPECT_THAT(master.get("/query_segment?segment=127.0.0.1:9").body,
              StartsWith("127.0.0.1:9\nUsed(bytes): "));
  EXPECT_EQ(master.get("/query_segment?segment=none").status, 500);
  EXPECT_EQ(master.get_json("/api/v1/segments/status?segment=127.0.0.1:9")["status_name"], "OK");
  const HttpReply none = master.get("/api/v1/segments/status?segment=none");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(parsed(none)["error_code"], -101);
}

TEST(HttpPorts, FindKeysWhereTheyAre) {
  const HttpMaster master;
  HoldingAgent agent(members_of({master.address()}), 1);
  agent.put({"a", "b c", "with,comma"});
  const std::string tenant = std::string("&") + kTenant;
  const HttpReply found = master.get("/query_key?key=b%20c" + tenant);
  EXPECT_EQ(found.status, 200);
  const Json::Value replica = parsed(found)["data"][0];
  EXPECT_EQ(replica["size_"], 4096);
  EXPECT_EQ(replica["transport_endpoint_"], "127.0.0.1:9");
  EXPECT_EQ(replica["protocol_"], "tcp");
  const HttpReply missing = master.get("/query_key?key=zz" + tenant);
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(parsed(missing)["error_code"], -704);
  EXPECT_EQ(parsed(missing)["error_message"], "OBJECT_NOT_FOUND");
  EXPECT_EQ(master.get("/query_key?key=a").status, 404);  // of another tenant
  const Json::Value batch = master.get_json("/batch_query_keys?keys=a,zz" + tenant);
  EXPECT_EQ(batch["success"], true);
  EXPECT_EQ(batch["data"]["a"]["ok"], true);
  EXPECT_EQ(batch["data"]["a"]["values"][0]["size_"], 4096);
  EXPECT_TRUE(batch["data"]["a"]["disk_values"].isNull());
  EXPECT_EQ(batch["data"]["zz"]["ok"], false);
  EXPECT_EQ(batch["data"]["zz"]["error"], "OBJECT_NOT_FOUND");
  EXPECT_EQ(master.get("/batch_query_keys").status, 400);
}

TEST(HttpPorts, ListAllKeysOrAPageOfThem) {
  const HttpMaster master;
  HoldingAgent agent(members_of({master.address()}), 1);
  std::vector<std::string> keys = names("k", 10'000);
  agent.put(keys);
  std::ranges::sort(keys);
  const std::string all = std::string("/get_all_keys?") + kTenant;
  EXPECT_EQ(lines(master.get(all).body), keys);
  std::vector<std::string> paged;
  std::string cursor;
  int pages = 0;
  do {
    const HttpReply page = master.get(all + "&limit=4000&cursor=" + cursor);
    const auto some = lines(page.body);
    EXPECT_LE(some.size(), 4000u);
    paged.insert(paged.end(), some.begin(), some.end());
    cursor = page.next_cursor;
  } while (!cursor.empty() && ++pages < 10);
  EXPECT_EQ(pages, 2);
  EXPECT_EQ(paged, keys);
  for (const char* bad : {"&limit=0", "&limit=4097", "&limit=x", "&cursor=x", "&cursor=0-6"}) {
    const HttpReply refused = master.get(all + bad);
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(parsed(refused)["error_code"], -600) << bad;
  }
}

TEST(HttpPorts, FindAndListTheKeysOfPartitionsThatAnotherMasterLeads) {
  constexpr std::uint32_t kPartitions = 2;
  conformance::StoreServer redis(conformance::redis_command());
  const std::vector<std::string> flags = {"--cluster-store", "redis://" + redis.host(),
                                          "--partitions", "2"};
  const HttpMaster one(flags);
  const HttpMaster other(flags);
  // Each leads a partition.
  for (const HttpMaster* each : {&one, &other}) {
    ASSERT_TRUE(until([&] {
      return each->get("/metrics").body.find("_partitions_led 1\n") != std::string::npos;
    }));
  }
  std::vector<std::string> keys = names("k", 40);
  std::vector<std::unique_ptr<HoldingAgent>> agents;
  for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
    MasterClientOptions options = members_of({one.address(), other.address()});
    options.partition = partition;
    options.partitions = kPartitions;
    std::vector<std::string> own = keys;
    std::erase_if(
        own, [&](const auto& key) { return partition_of(hash_of(key), kPartitions) != partition; });
    agents.push_back(std::make_unique<HoldingAgent>(options, 1));
    agents.back()->put(own);
  }
  const HttpMaster& leader = one.get("/role").body == "leader" ? one : other;
  std::ranges::sort(keys);
  EXPECT_EQ(lines(leader.get(std::string("/get_all_keys?") + kTenant).body), keys);
  for (const std::string& key : keys) {
    EXPECT_EQ(leader.get("/query_key?key=" + key + "&" + kTenant).status, 200) << key;
  }
}

TEST(HttpPorts, CountWhatTheMasterDid) {
  const HttpMaster master;
  HoldingAgent agent(members_of({master.address()}), 1);
  agent.put(names("k", 7));
  const auto reader = tool(members_of({master.address()}));
  ASSERT_TRUE(locate(*reader, {"k1", "k2", "none"}).has_value());
  ASSERT_TRUE(until(
      [&] { return master.get("/metrics").body.find("_key_count 7\n") != std::string::npos; }));
  const std::string text = master.get("/metrics").body;
  for (const char* line :
       {"# TYPE master_key_count gauge\n", "\nmaster_active_clients 1\n",
        "\nmaster_total_capacity_bytes 1073741824\n",
        "\nsegment_total_capacity_bytes{segment=\"127.0.0.1:9\"} 1073741824\n",
        "\nmaster_batch_put_end_items_total 7\n", "\nmaster_batch_get_replica_list_items_total 3\n",
        "\nmaster_batch_get_replica_list_failed_items_total 1\n",
        "# TYPE master_ping_requests_total counter\n", "\nmc_master_leads 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const std::string summary = master.get("/metrics/summary").body;
  EXPECT_THAT(summary, StartsWith("role=leader, state=serving, service_ready=true, master={Mem "
                                  "Storage: "));
  EXPECT_THAT(summary, HasSubstr(" / 1.00 GB ("));
  EXPECT_THAT(summary, HasSubstr(" | Keys: 7 | Clients: 1 | Requests (Success/Total per sec): "));
}

TEST(HttpPorts, RemoveAllObjects) {
  const HttpMaster master({"--partitions", "2"});
  ASSERT_TRUE(master.until_role("leader"));
  HoldingAgent agent(members_of({master.address()}), 1);
  agent.put({"a", "b"});
  ASSERT_EQ(master.get("/api/v1/remove_all").status, 405);
  const Json::Value removed = parsed(master.post("/api/v1/remove_all?force=true"));
  EXPECT_EQ(removed["success"], true);
  EXPECT_EQ(removed["removed_count"], 2);
  EXPECT_EQ(removed["unconfirmed_hosts"], 0);
  EXPECT_FALSE(agent.holds("a"));
  EXPECT_EQ(master.get(std::string("/query_key?key=a&") + kTenant).status, 404);
  const HttpReply quotas = master.get("/api/v1/tenant_quotas");
  EXPECT_EQ(quotas.status, 501);
  EXPECT_THAT(quotas.body, HasSubstr("capacity_bytes"));
}

class DrainJobPages : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(master_.until_role("leader"));
    full_.emplace(members_of({master_.address()}), 1);
    full_->put({"a", "b", "c"});
    until_shown();
  }
  void add_host(NodeId node) {
    others_.push_back(std::make_unique<HoldingAgent>(members_of({master_.address()}), node));
    ASSERT_TRUE(others_.back()->until_ready());
    until_shown();
  }
  // The pages show a new host within a moment.
  void until_shown() {
    ASSERT_TRUE(until(
        [&] { return lines(master_.get("/get_all_segments").body).size() == 1 + others_.size(); }));
  }
  HttpReply begin(const std::string& body) { return master_.post("/api/v1/drain_jobs", body); }
  Json::Value query(const std::string& job) {
    return master_.get_json("/api/v1/drain_jobs/query?job_id=" + job);
  }
  std::string segment_state(const std::string& segment) {
    return master_.get_json("/api/v1/segments/status?segment=" + segment)["status_name"].asString();
  }

  HttpMaster master_;
  std::optional<HoldingAgent> full_;
  std::vector<std::unique_ptr<HoldingAgent>> others_;
};

TEST_F(DrainJobPages, MoveAllObjectsOfASegmentToTheTargets) {
  add_host(2);
  add_host(3);
  const Json::Value begun = parsed(begin(
      R"({"segments":["127.0.0.1:9"],"target_segments":["127.0.0.1:11"],"max_concurrency":2})"));
  EXPECT_EQ(begun["success"], true);
  EXPECT_EQ(begun["status"], "CREATED");
  const std::string job = begun["job_id"].asString();
  Json::Value facts;
  ASSERT_TRUE(until([&] { return (facts = query(job))["status_name"] == "SUCCEEDED"; }))
      << facts.toStyledString();
  EXPECT_EQ(facts["status"], 3);
  EXPECT_EQ(facts["type_name"], "DRAIN");
  EXPECT_EQ(facts["segments"][0], "127.0.0.1:9");
  EXPECT_EQ(facts["succeeded_units"], 3);
  EXPECT_EQ(facts["migrated_bytes"], 3 * 4096);
  EXPECT_EQ(facts["blocked_units"], 0);
  EXPECT_GE(facts["last_updated_at_ms_epoch"].asUInt64(), facts["created_at_ms_epoch"].asUInt64());
  for (const char* const key : {"a", "b", "c"}) {
    EXPECT_FALSE(full_->holds(key));
    EXPECT_TRUE(others_[1]->holds(key));
  }
  EXPECT_TRUE(until([&] { return segment_state("127.0.0.1:9") == "DRAINED"; }));
  EXPECT_EQ(begin(R"({"segments":["127.0.0.1:9"]})").status, 409);
  EXPECT_EQ(master_.post("/api/v1/drain_jobs/cancel?job_id=" + job).status, 409);
}

TEST_F(DrainJobPages, WithoutRoomElsewhereAreBlockedUntilCancelled) {
  const std::string job = parsed(begin(R"({"segments":["127.0.0.1:9"]})"))["job_id"].asString();
  Json::Value facts;
  ASSERT_TRUE(until([&] { return (facts = query(job))["blocked_units"] == 3; }))
      << facts.toStyledString();
  EXPECT_EQ(facts["status_name"], "RUNNING");
  EXPECT_TRUE(until([&] { return segment_state("127.0.0.1:9") == "DRAINING"; }));
  // A leader that has forgotten the drain learns of the drain with the next question.
  const auto leader = tool(members_of({master_.address()}));
  ASSERT_TRUE(wait_for<wire::DrainAnswer>([&](auto done) {
                leader->drain({.node = 1, .stop = true}, soon(), std::move(done));
              }).has_value());
  ASSERT_TRUE(until([&] { return segment_state("127.0.0.1:9") == "OK"; }));
  EXPECT_EQ(query(job)["status_name"], "RUNNING");
  EXPECT_TRUE(until([&] { return segment_state("127.0.0.1:9") == "DRAINING"; }));
  EXPECT_EQ(parsed(master_.post("/api/v1/drain_jobs/cancel?job_id=" + job))["status"], "CANCELED");
  EXPECT_EQ(query(job)["status_name"], "CANCELED");
  EXPECT_TRUE(until([&] { return segment_state("127.0.0.1:9") == "OK"; }));
  EXPECT_TRUE(full_->holds("a"));
}

TEST_F(DrainJobPages, WithABadOrderBeginNothing) {
  for (const std::string body :
       {"", "[]", "{}", R"({"segments":[]})", R"({"segments":"127.0.0.1:9"})",
        R"({"segments":[1]})", R"({"segments":["127.0.0.1:9","127.0.0.1:9"]})",
        R"({"segments":["127.0.0.1:9"],"max_concurrency":0})",
        R"({"segments":["127.0.0.1:9"],"target_segments":["127.0.0.1:9"]})"}) {
    const HttpReply reply = begin(body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(parsed(reply)["error_code"], -600) << body;
  }
  EXPECT_EQ(begin(std::string(100'000, '[')).status, 400);
  const HttpReply unknown = begin(R"({"segments":["127.0.0.1:77"]})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(parsed(unknown)["error_code"], -101);
  const HttpReply nowhere = master_.get("/api/v1/drain_jobs/query?job_id=1-2");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(parsed(nowhere)["error_code"], -1402);
  EXPECT_EQ(master_.get("/api/v1/drain_jobs/query").status, 400);
  EXPECT_EQ(segment_state("127.0.0.1:9"), "OK");
}

TEST(HttpPorts, OfAStandbyNameTheLeader) {
  conformance::StoreServer redis(conformance::redis_command());
  const std::vector<std::string> flags = {"--cluster-store", "redis://" + redis.host()};
  HttpMaster first(flags);
  ASSERT_TRUE(first.until_role("leader"));
  const HttpMaster second(flags);
  ASSERT_TRUE(
      until([&] { return second.get_json("/leader")["leader_address"] == first.address(); }));
  EXPECT_EQ(second.get("/role").body, "standby");
  EXPECT_EQ(second.get_json("/health")["service_ready"], false);
  EXPECT_THAT(second.get("/metrics").body, HasSubstr("\nmc_master_leads 0\n"));
  const HttpReply refused = second.get("/get_all_keys");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(parsed(refused)["error_code"], -1011);
  EXPECT_THAT(refused.body, HasSubstr(first.address()));
  first.process().kill_hard();
  EXPECT_TRUE(second.until_role("leader"));
  EXPECT_EQ(second.get("/get_all_keys").status, 200);
}

TEST(HttpPorts, FindKeysThroughTls) {
  const conformance::TempDirectory directory;
  const conformance::Authority authority(directory.path(), "own");
  const transport::tls::Files shown = authority.issue("master", "IP:127.0.0.1");
  const std::vector<std::string> flags = {"--tls-cert", shown.cert, "--tls-key", shown.key};
  const auto query = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    const HttpMaster master(all);
    EXPECT_TRUE(master.until_role("leader"));
    return master.get("/query_key?key=a");
  };
  const HttpReply without = query({});
  EXPECT_EQ(without.status, 503);
  EXPECT_THAT(without.body, HasSubstr("master_tls_ca"));
  EXPECT_EQ(query({"--master-tls-ca", shown.ca}).status, 404);
}

TEST(HttpPorts, OfAnotherHostNeedAToken) {
  const auto [status, said] =
      run_master_once({"--listen", "127.0.0.1:" + std::to_string(conformance::free_port()),
                       "--http-listen", "0.0.0.0:" + std::to_string(conformance::free_port())});
  EXPECT_EQ(status, 1);
  EXPECT_THAT(said, HasSubstr("set http_token_file, MC_HTTP_TOKEN_FILE or ADMIN_API_KEY"));
}

TEST(HttpPorts, ServeMetadata) {
  const std::string port = std::to_string(conformance::free_port());
  const MasterProcess master({"--metadata-listen", "127.0.0.1:" + port});
  const std::string base = "http://127.0.0.1:" + port;
  EXPECT_EQ(ask(base + "/health").body, "OK");
  const std::string url = base + "/metadata?key=mooncake%2Fram%2Fa";
  EXPECT_EQ(ask(url).body, "metadata not found");
  EXPECT_EQ(ask(url, "PUT").body, "metadata updated");
  EXPECT_EQ(ask(url).status, 200);
  EXPECT_EQ(ask(url, "DELETE").body, "metadata deleted");
  EXPECT_EQ(ask(url, "DELETE").status, 404);
}

TEST(MetadataPages, AreBounded) {
  MetadataPages pages;
  const auto put = [&](const std::string& key, std::size_t bytes) {
    return pages.answer({"PUT", "/metadata", {{"key", key}}, std::string(bytes, 'x')}).status;
  };
  const std::size_t big = http::kMaxBodyBytes;
  const std::size_t fit = MetadataPages::kMaxBytes / (big + 4);
  for (std::size_t i = 0; i < fit; ++i) ASSERT_EQ(put("k" + std::to_string(100 + i), big), 200u);
  EXPECT_EQ(put("more", big), 507u);
  EXPECT_EQ(put("k100", 1), 200u);  // a smaller value makes room
  EXPECT_EQ(put("more", big - 1), 200u);
  EXPECT_EQ(pages.answer({"GET", "/metadata", {{"key", "k101"}}, {}}).body.size(), big);
  EXPECT_EQ(pages.answer({"DELETE", "/metadata", {{"key", "k101"}}, {}}).status, 200u);
  EXPECT_EQ(put("k101", big), 200u);
  EXPECT_EQ(pages.answer({"POST", "/metadata", {{"key", "k101"}}, {}}).status, 405u);
  EXPECT_EQ(pages.answer({"GET", "/metadata", {}, {}}).status, 400u);
  EXPECT_EQ(pages.answer({"GET", "/other", {}, {}}).status, 404u);
}

}  // namespace
}  // namespace mc::metadata
