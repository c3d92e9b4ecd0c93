// SPDX-License-Identifier: Apache-2.0
//
// At, below and above every limit; invalid arguments of every function.
#include <cstring>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Limits = ClientTest;
MC_EVERYWHERE(Limits);

TEST_P(Limits, AKeyHas1To1024Bytes) {
  serve();
  mc_client* client = open();
  const std::string longest(1024, 'k'), longer(1025, 'k');
  EXPECT_EQ(put(client, longest, "value"), MC_OK);
  EXPECT_EQ(get(client, longest), "value");
  mc_stat_info info{};
  info.struct_size = sizeof info;
  mc_view view{};
  char byte = 0;
  std::size_t length = 0;
  for (const mc_slice bad : {slice(longer), mc_slice{"", 0}, mc_slice{nullptr, 5}}) {
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put(client, bad, slice("value"), nullptr)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_get(client, bad, &byte, 1, &length)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_get_view(client, bad, &view)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_exists(client, bad)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_stat(client, bad, &info)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_remove(client, bad, 0)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_set_pin(client, bad, MC_PIN_HARD, 0, 0)));
  }
  mc_put_options options = put_options();
  options.parent = slice(longer);
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put(client, "child", "value", &options)));
  options.parent = slice(longest);
  EXPECT_EQ(put(client, "child", "value", &options), MC_OK);
}

TEST_P(Limits, AKeyOfTheClustersStripesIsRefusedAlone) {
  serve();
  mc_client* client = open();
  const std::string keys[] = {"before", std::string("\0mc stripe 1", 12), "behind"};
  const mc_slice value = slice("value");
  mc_put_item items[3];
  for (int i = 0; i < 3; ++i) items[i] = {slice(keys[i]), &value, 1, {nullptr, 0}, MC_OK};
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_batch(client, items, 3, nullptr)));
  EXPECT_EQ(items[0].status, MC_OK);
  EXPECT_EQ(items[1].status, MC_INVALID_ARGUMENT);
  EXPECT_EQ(items[2].status, MC_OK);
  EXPECT_EQ(get(client, "behind"), "value");
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put(client, keys[1], "value")));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, exists(client, keys[1])));
}

TEST_P(Limits, ABatchHas1To1024Items) {
  serve();
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const std::string value = "value";
  const mc_slice piece = slice(value);
  const std::vector<mc_slice> keys(1025, slice("key"));
  std::vector<mc_put_item> puts(1025, {slice("key"), &piece, 1, {nullptr, 0}, MC_INTERNAL});
  std::vector<mc_get_item> gets(1025, {slice("key"), nullptr, 0, 0, 0, MC_INTERNAL});
  std::vector<mc_status> statuses(1025, MC_INTERNAL);
  std::vector<mc_view> views(1025);
  std::vector<mc_stat_info> infos(1025);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1025}, ~std::size_t{0}}) {
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_batch(client, puts.data(), count, nullptr)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_get_batch(client, gets.data(), count)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                     mc_get_view_batch(client, keys.data(), count, views.data(), statuses.data())));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_exists_batch(client, keys.data(), count, statuses.data())));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                     mc_stat_batch(client, keys.data(), count, infos.data(), statuses.data())));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_remove_batch(client, keys.data(), count, statuses.data(), 0)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                     mc_put_async(client, cq, puts.data(), count, nullptr, 0, nullptr)));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_get_async(client, cq, gets.data(), count, 0, nullptr)));
    EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                     mc_exists_async(client, cq, keys.data(), count, statuses.data(), 0, nullptr)));
    EXPECT_TRUE(
        says(MC_INVALID_ARGUMENT, mc_remove_async(client, cq, keys.data(), count, 0, 0, nullptr)));
  }
  mc_completion completion{};
  EXPECT_EQ(mc_cq_poll(cq, &completion, 1), 0u) << "what was refused does not complete";
  EXPECT_EQ(exists(client, "key"), MC_NOT_FOUND);
  mc_cq_destroy(cq);
}

TEST_P(Limits, NullArgumentsAreRefusedWithAText) {
  serve();
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  const mc_slice key = slice("key");
  const mc_slice value = slice("value");
  mc_put_item item{key, &value, 1, {nullptr, 0}, MC_OK};
  mc_get_item wanted{key, nullptr, 0, 0, 0, MC_OK};
  mc_view view{};
  mc_status status = MC_OK;
  mc_stat_info info{};
  info.struct_size = sizeof info;
  mc_client_info about{};
  about.struct_size = sizeof about;
  mc_reservation* reservation = nullptr;
  mc_group* group = nullptr;
  mc_completion completion{};
  std::size_t count = 0;
  void* memory = nullptr;
  char byte = 0;
  const mc_status refused[] = {
      mc_open(nullptr, nullptr),
      mc_get_client_info(nullptr, &about),
      mc_get_client_info(client, nullptr),
      mc_put(nullptr, key, value, nullptr),
      mc_put(client, key, {nullptr, 5}, nullptr),
      mc_put(client, key, {"", 0}, nullptr),
      mc_put_batch(nullptr, &item, 1, nullptr),
      mc_put_batch(client, nullptr, 1, nullptr),
      mc_get(nullptr, key, &byte, 1, &count),
      mc_get(client, key, nullptr, 1, &count),
      mc_get_batch(nullptr, &wanted, 1),
      mc_get_batch(client, nullptr, 1),
      mc_get_view(nullptr, key, &view),
      mc_get_view(client, key, nullptr),
      mc_get_view_batch(nullptr, &key, 1, &view, &status),
      mc_get_view_batch(client, nullptr, 1, &view, &status),
      mc_get_view_batch(client, &key, 1, nullptr, &status),
      mc_get_view_batch(client, &key, 1, &view, nullptr),
      mc_view_check(nullptr),
      mc_view_check(&view),
      mc_view_verify(nullptr, key),
      mc_view_verify(&view, key),
      mc_exists(nullptr, key),
      mc_exists_batch(nullptr, &key, 1, &status),
      mc_exists_batch(client, nullptr, 1, &status),
      mc_exists_batch(client, &key, 1, nullptr),
      mc_stat(nullptr, key, &info),
      mc_stat(client, key, nullptr),
      mc_stat_batch(client, &key, 1, &info, nullptr),
      mc_remove(nullptr, key, 0),
      mc_remove_batch(client, nullptr, 1, &status, 0),
      mc_remove_batch(client, &key, 1, nullptr, 0),
      mc_set_pin(nullptr, key, MC_PIN_HARD, 0, 0),
      mc_set_pin(client, key, static_cast<mc_pin>(3), 0, 0),
      mc_reserve(nullptr, 1, 0, &reservation),
      mc_reserve(client, 1, 0, nullptr),
      mc_commit(nullptr, key, 1, nullptr),
      mc_alloc(nullptr, 1, &memory),
      mc_alloc(client, 1, nullptr),
      mc_group_begin(nullptr, &group),
      mc_group_begin(client, nullptr),
      mc_group_commit(nullptr, 0),
      mc_cq_create(nullptr, &cq),
      mc_cq_create(client, nullptr),
      mc_cq_wait(nullptr, &completion, 1, &count, 0),
      mc_cq_wait(cq, nullptr, 1, &count, 0),
      mc_cq_wait(cq, &completion, 0, &count, 0),
      mc_cq_wait(cq, &completion, 1, nullptr, 0),
      mc_put_async(nullptr, cq, &item, 1, nullptr, 0, nullptr),
      mc_put_async(client, nullptr, &item, 1, nullptr, 0, nullptr),
      mc_put_async(client, cq, nullptr, 1, nullptr, 0, nullptr),
      mc_get_async(nullptr, cq, &wanted, 1, 0, nullptr),
      mc_get_async(client, nullptr, &wanted, 1, 0, nullptr),
      mc_get_async(client, cq, nullptr, 1, 0, nullptr),
      mc_exists_async(nullptr, cq, &key, 1, &status, 0, nullptr),
      mc_exists_async(client, nullptr, &key, 1, &status, 0, nullptr),
      mc_exists_async(client, cq, &key, 1, nullptr, 0, nullptr),
      mc_remove_async(nullptr, cq, &key, 1, 0, 0, nullptr),
      mc_remove_async(client, nullptr, &key, 1, 0, 0, nullptr),
      mc_remove_async(client, cq, nullptr, 1, 0, 0, nullptr),
      mc_cancel(nullptr, cq, 1),
      mc_cancel(client, nullptr, 1),
      mc_ping(nullptr, 0),
  };
  for (std::size_t i = 0; i < std::size(refused); ++i)
    EXPECT_EQ(refused[i], MC_INVALID_ARGUMENT) << i;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_ping(nullptr, 0)));
  mc_close(nullptr);
  mc_cq_destroy(nullptr);
  EXPECT_EQ(mc_cq_fd(nullptr), -1);
  EXPECT_EQ(mc_cq_poll(nullptr, &completion, 1), 0u);
  EXPECT_EQ(mc_cq_poll(cq, &completion, 1), 0u);
  EXPECT_EQ(mc_view_spans(nullptr, nullptr, 0), 0u);
  EXPECT_EQ(exists(client, "key"), MC_NOT_FOUND) << "nothing was changed";
  EXPECT_EQ(mc_ping(client, 0), MC_OK);
  mc_cq_destroy(cq);
}

TEST_P(Limits, StructsWithoutTheirSizeAreRefused) {
  serve();
  mc_client* client = open();
  mc_put_options options{};
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put(client, "key", "value", &options)));
  mc_open_options opening{};
  mc_client* none = client;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_open(&opening, &none)));
  EXPECT_EQ(none, nullptr);
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  mc_stat_info info{};
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_stat(client, slice("key"), &info)));
  mc_client_info about{};
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_get_client_info(client, &about)));
  options = put_options(static_cast<mc_pin>(3));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, put(client, "other", "value", &options)));
}

TEST_P(Limits, OpeningWithWrongOptionsIsRefused) {
  serve();
  mc_client* client = nullptr;
  const std::string long_name(65, 'n');
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, try_open(&client, [&](mc_open_options& o) {
                     o.name_space = long_name.c_str();
                   })));
  EXPECT_TRUE(
      says(MC_INVALID_ARGUMENT, try_open(&client, [](mc_open_options& o) { o.name_space = ""; })));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT,
                   try_open(&client, [](mc_open_options& o) { o.channel_count = 65; })));
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, try_open(&client, [](mc_open_options& o) {
                     o.staging_bytes = MC_MAX_STAGING_BYTES + 1;
                   })));
  EXPECT_TRUE(says(MC_NO_SUCH_NAMESPACE,
                   try_open(&client, [](mc_open_options& o) { o.name_space = "nobody"; })));
  EXPECT_EQ(client, nullptr);
  client = open([](mc_open_options& o) { o.channel_count = 64; });
  EXPECT_EQ(put(client, "key", "value"), MC_OK);
}

TEST_P(Limits, AValueLargerThanThePoolIsTooLargeAtOnce) {
  serve({{"pool_bytes", "8MiB"}, {"session_quota_bytes", "64MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 16 * kMiB; });
  ASSERT_EQ(put(client, "small", "value"), MC_OK);
  const mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  EXPECT_TRUE(says(MC_TOO_LARGE, put(client, "large", content("x", 8 * kMiB + 1), &patient)));
  EXPECT_EQ(exists(client, "large"), MC_NOT_FOUND);
  EXPECT_EQ(get(client, "small"), "value") << "nothing is evicted for what will never fit";
  EXPECT_TRUE(
      says(MC_TOO_LARGE, mc_put(client, slice("key"), {"x", MC_MAX_OBJECT_BYTES + 1}, nullptr)));
}

TEST_P(Limits, AnObjectOfTheWholePoolFits) {
  serve({{"pool_bytes", "8MiB"}, {"session_quota_bytes", "64MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 16 * kMiB; });
  const std::string value = content("whole", 8 * kMiB);
  ASSERT_EQ(put(client, "whole", value), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "whole") == value);
}

TEST_P(Limits, AValueLargerThanTheSessionsQuotaIsTooLarge) {
  serve({{"pool_bytes", "16MiB"}, {"session_quota_bytes", "2MiB"}});
  mc_client* client = open();
  EXPECT_TRUE(says(MC_TOO_LARGE, put(client, "large", content("x", 2 * kMiB + 1))));
  EXPECT_EQ(put(client, "fits", content("fits", 2 * kMiB)), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "fits") == content("fits", 2 * kMiB));
}

TEST_P(Limits, ReservationsBeyondTheQuotaAreRefusedUntilSomeComeBack) {
  serve({{"pool_bytes", "16MiB"}, {"session_quota_bytes", "4MiB"}});
  mc_client* client = open();
  std::vector<mc_reservation*> held;
  mc_reservation* one = nullptr;
  mc_status status = MC_OK;
  while ((status = mc_reserve(client, kMiB, kSecondNs / 50, &one)) == MC_OK) held.push_back(one);
  EXPECT_TRUE(says(isolated() ? MC_NO_SPACE : MC_QUOTA_EXCEEDED, status));
  ASSERT_EQ(held.size(), 4u);
  mc_abandon(held.back());
  held.pop_back();
  EXPECT_EQ(mc_reserve(client, kMiB, 0, &one), MC_OK) << mc_last_error();
  held.push_back(one);
  for (mc_reservation* each : held) mc_abandon(each);
}

TEST_P(Limits, StagingBeyondTheQuotaIsRefusedWithAText) {
  serve({{"pool_bytes", "16MiB"}, {"session_quota_bytes", "4MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 5 * kMiB; });
  void* memory = nullptr;
  EXPECT_TRUE(says(MC_QUOTA_EXCEEDED, mc_alloc(client, 100, &memory)));
}

TEST_P(Limits, TheClientTellsAboutItself) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  mc_client_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(mc_get_client_info(client, &info), MC_OK);
  EXPECT_NE(info.session_id, 0u);
  EXPECT_NE(info.node_id, 0u);
  EXPECT_NE(info.agent_incarnation, 0u);
  EXPECT_EQ(info.isolated, isolated() ? 1u : 0u);
  until([&] { return mc_get_client_info(client, &info) != MC_OK || info.pool_bytes == 8 * kMiB; });
  EXPECT_EQ(mc_ping(client, 0), MC_OK);
  EXPECT_EQ(mc_ping(client, kSecondNs * 30), MC_OK);
}

TEST_P(Limits, TheLastErrorIsOfThisThreadsLastFailure) {
  serve();
  mc_client* client = open();
  EXPECT_EQ(exists(client, "missing"), MC_NOT_FOUND);
  const std::string miss = mc_last_error();
  EXPECT_FALSE(miss.empty());
  EXPECT_EQ(exists(client, ""), MC_INVALID_ARGUMENT);
  EXPECT_NE(miss, mc_last_error());
}

TEST(Vocabulary, EveryStatusHasANameASentenceAndAnAnswerToRetrying) {
  const mc_status all[] = {MC_OK,
                           MC_INVALID_ARGUMENT,
                           MC_TOO_LARGE,
                           MC_BUFFER_TOO_SMALL,
                           MC_TIMEOUT,
                           MC_CANCELLED,
                           MC_BUSY,
                           MC_NO_SPACE,
                           MC_QUOTA_EXCEEDED,
                           MC_UNSUPPORTED,
                           MC_NOT_FOUND,
                           MC_CORRUPT,
                           MC_GROUP_ABORTED,
                           MC_HOLDER_AWAY,
                           MC_DISK_AWAY,
                           MC_FORKED,
                           MC_CLOSED,
                           MC_SESSION_LOST,
                           MC_PERMISSION_DENIED,
                           MC_VERSION_MISMATCH,
                           MC_NO_SUCH_NAMESPACE,
                           MC_AGENT_UNAVAILABLE,
                           MC_NO_MEMORY,
                           MC_INTERNAL,
                           MC_WRONG_KEY,
                           MC_NO_MASTER,
                           MC_NOT_ADVERTISED};
  for (const mc_status status : all) {
    EXPECT_EQ(std::string(mc_status_name(status)).rfind("MC_", 0), 0u);
    EXPECT_GT(std::strlen(mc_status_text(status)), 1u);
  }
  EXPECT_STREQ(mc_status_name(MC_NOT_FOUND), "MC_NOT_FOUND");
  EXPECT_NE(mc_status_name(static_cast<mc_status>(30)), nullptr);
  EXPECT_NE(mc_status_text(static_cast<mc_status>(79)), nullptr);
  EXPECT_EQ(mc_status_retry(MC_INVALID_ARGUMENT), MC_RETRY_NEVER);
  EXPECT_EQ(mc_status_retry(MC_BUSY), MC_RETRY_LATER);
  EXPECT_EQ(mc_status_retry(MC_SESSION_LOST), MC_RETRY_REOPEN);
  EXPECT_EQ(mc_status_retry(MC_FORKED), MC_RETRY_REOPEN);
  EXPECT_STREQ(mc_version(), "0.1.0");
}

class UserLimits : public AgentTest {};
MC_WITH_AGENT(UserLimits);

TEST_P(UserLimits, AUserHasALimitedNumberOfSessions) {
  serve({{"max_sessions_per_user", "3"}});
  std::vector<mc_client*> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(open());
  mc_client* fourth = nullptr;
  EXPECT_TRUE(says(MC_BUSY, try_open(&fourth)));
  EXPECT_NE(std::string(mc_last_error()).find("max_sessions_per_user"), std::string::npos)
      << mc_last_error();
  EXPECT_EQ(fourth, nullptr);
  EXPECT_EQ(put(clients[2], "key", "value"), MC_OK) << "those it has go on";
  close(clients[1]);
  ASSERT_EQ(try_open(&fourth), MC_OK) << mc_last_error();
  EXPECT_EQ(get(fourth, "key"), "value");
}

TEST_P(UserLimits, RefusalsDoNotFillTheLog) {
  serve({{"max_sessions_per_user", "1"}});
  open();
  for (int i = 0; i < 500; ++i) {
    mc_client* none = nullptr;
    ASSERT_EQ(try_open(&none), MC_BUSY);
  }
  const std::string log = agent().log();
  std::size_t lines = 0;
  for (std::size_t at = log.find("client_refused"); at != std::string::npos;
       at = log.find("client_refused", at + 1)) {
    ++lines;
  }
  EXPECT_GT(lines, 0u);
  EXPECT_LT(lines, 250u);
}

}  // namespace
}  // namespace mc::conformance
