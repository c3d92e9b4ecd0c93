// SPDX-License-Identifier: Apache-2.0
//
// Batches: every item has a status, and a failed item does not delay the others.
#include <algorithm>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Batches = ClientTest;
MC_EVERYWHERE(Batches);

std::string key_of(std::size_t i) { return "batch." + std::to_string(i); }
std::size_t size_of(std::size_t i) { return 1 + (i * 997) % 9000; }

struct PutList {
  std::vector<std::string> keys, values;
  std::vector<mc_slice> pieces;
  std::vector<mc_put_item> items;

  void add(std::string key, std::string value) {
    keys.push_back(std::move(key));
    values.push_back(std::move(value));
  }
  mc_put_item* ready() {
    pieces.clear();
    items.clear();
    for (const std::string& value : values) pieces.push_back(slice(value));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      items.push_back({slice(keys[i]), &pieces[i], 1, {nullptr, 0}, MC_INTERNAL});
    }
    return items.data();
  }
};

TEST_P(Batches, EveryItemOfAFullBatchIsStoredFoundAndRemoved) {
  serve();
  mc_client* client = open();
  for (const std::size_t count : {1u, 2u, 32u, 1023u, 1024u}) {
    PutList list;
    for (std::size_t i = 0; i < count; ++i) list.add(key_of(i), content(key_of(i), size_of(i)));
    ASSERT_EQ(mc_put_batch(client, list.ready(), count, nullptr), MC_OK) << mc_last_error();
    std::vector<mc_slice> keys;
    for (const std::string& key : list.keys) keys.push_back(slice(key));
    std::vector<mc_status> statuses(count, MC_INTERNAL);
    std::vector<mc_get_item> gets;
    std::vector<std::string> into(count);
    std::vector<mc_span> spans(count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(list.items[i].status, MC_OK);
      into[i].resize(size_of(i));
      spans[i] = {into[i].data(), into[i].size()};
      gets.push_back({keys[i], &spans[i], 1, 0, 0, MC_INTERNAL});
    }
    EXPECT_EQ(mc_exists_batch(client, keys.data(), count, statuses.data()), MC_OK);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), MC_OK), count);
    EXPECT_EQ(mc_get_batch(client, gets.data(), count), MC_OK);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(gets[i].status, MC_OK);
      EXPECT_EQ(gets[i].length, size_of(i));
      EXPECT_TRUE(into[i] == list.values[i]) << i;
    }
    std::vector<mc_stat_info> infos(count);
    for (mc_stat_info& info : infos) info.struct_size = sizeof info;
    EXPECT_EQ(mc_stat_batch(client, keys.data(), count, infos.data(), statuses.data()), MC_OK);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(infos[i].length, size_of(i));
    EXPECT_EQ(mc_remove_batch(client, keys.data(), count, statuses.data(), 0), MC_OK);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), MC_OK), count);
    EXPECT_EQ(mc_exists_batch(client, keys.data(), count, statuses.data()), MC_OK);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), MC_NOT_FOUND), count);
  }
}

TEST_P(Batches, GoodItemsOfAPutBatchAreStoredBesideBadOnes) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, key_of(0), "there before"), MC_OK);
  PutList list;
  for (std::size_t i = 0; i < 64; ++i) list.add(key_of(i), content(key_of(i), size_of(i)));
  list.add("", "an empty key");
  list.add(std::string(1025, 'k'), "a key that is too long");
  list.add("an empty value", "");
  list.add("last", "good again");
  mc_put_item* items = list.ready();
  const mc_slice none{nullptr, 4};
  items[66].pieces = &none;
  EXPECT_TRUE(says(MC_INVALID_ARGUMENT, mc_put_batch(client, items, list.keys.size(), nullptr)));
  for (std::size_t i = 0; i < list.keys.size(); ++i) {
    EXPECT_EQ(items[i].status, i >= 64 && i < 67 ? MC_INVALID_ARGUMENT : MC_OK) << i;
  }
  EXPECT_EQ(get(client, key_of(0)), "there before");
  EXPECT_EQ(get(client, "last"), "good again");
  for (std::size_t i = 1; i < 64; ++i) EXPECT_TRUE(get(client, key_of(i)) == list.values[i]);
  EXPECT_EQ(exists(client, "an empty value"), MC_NOT_FOUND);
}

TEST_P(Batches, AKeyTwiceInABatchIsStoredOnce) {
  serve();
  mc_client* client = open();
  PutList list;
  for (int i = 0; i < 20; ++i) list.add("same", i == 0 ? "first" : "later");
  EXPECT_EQ(mc_put_batch(client, list.ready(), 20, nullptr), MC_OK);
  EXPECT_EQ(get(client, "same"), "first");
}

TEST_P(Batches, HitsMissesAndBadItemsOfAGetBatchHaveTheirOwnStatus) {
  serve();
  mc_client* client = open();
  for (std::size_t i = 0; i < 64; i += 2) {
    ASSERT_EQ(put(client, key_of(i), content(key_of(i), 1000)), MC_OK);
  }
  std::vector<std::string> keys, into(64, std::string(1000, '!'));
  std::vector<mc_span> spans;
  std::vector<mc_get_item> items;
  for (std::size_t i = 0; i < 64; ++i) keys.push_back(key_of(i));
  keys[10] = "";
  for (std::size_t i = 0; i < 64; ++i) spans.push_back({into[i].data(), 1000});
  for (std::size_t i = 0; i < 64; ++i) items.push_back({slice(keys[i]), &spans[i], 1, 0, 0, MC_OK});
  spans[20].size = 999;
  items[30].offset = 1000;
  items[40].pieces = nullptr;
  spans[50].data = nullptr;
  items[60].piece_count = MC_MAX_PIECES + 1;
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_get_batch(client, items.data(), items.size())));
  for (std::size_t i = 0; i < 64; ++i) {
    const bool bad = i == 10 || i == 30 || i == 40 || i == 50 || i == 60;
    const mc_status wanted = bad       ? MC_INVALID_ARGUMENT
                             : i == 20 ? MC_BUFFER_TOO_SMALL
                             : i % 2   ? MC_NOT_FOUND
                                       : MC_OK;
    EXPECT_EQ(items[i].status, wanted) << i;
    EXPECT_TRUE(into[i] == (wanted == MC_OK ? content(key_of(i), 1000) : std::string(1000, '!')))
        << i;
  }
  EXPECT_EQ(items[20].length, 1000u);
}

TEST_P(Batches, ABatchOfQuestionsTellsHitsFromMisses) {
  serve();
  mc_client* client = open();
  for (std::size_t i = 0; i < 1024; i += 3) ASSERT_EQ(put(client, key_of(i), "x"), MC_OK);
  std::vector<std::string> keys;
  std::vector<mc_slice> slices;
  for (std::size_t i = 0; i < 1024; ++i) keys.push_back(key_of(i));
  for (const std::string& key : keys) slices.push_back(slice(key));
  std::vector<mc_status> statuses(1024, MC_INTERNAL);
  EXPECT_EQ(mc_exists_batch(client, slices.data(), 1024, statuses.data()), MC_OK);
  for (std::size_t i = 0; i < 1024; ++i) EXPECT_EQ(statuses[i], i % 3 == 0 ? MC_OK : MC_NOT_FOUND);
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_remove_batch(client, slices.data(), 1024, statuses.data(), 0)));
  for (std::size_t i = 0; i < 1024; ++i) EXPECT_EQ(statuses[i], i % 3 == 0 ? MC_OK : MC_NOT_FOUND);
  for (const std::string& key : keys) EXPECT_EQ(exists(client, key), MC_NOT_FOUND);
}

TEST_P(Batches, TheLongestKeysFillABatchToo) {
  serve();
  mc_client* client = open();
  PutList list;
  for (std::size_t i = 0; i < 1024; ++i) {
    list.add(key_of(i) + std::string(MC_MAX_KEY_BYTES - key_of(i).size(), '.'),
             content(key_of(i), 300));
  }
  ASSERT_EQ(mc_put_batch(client, list.ready(), 1024, nullptr), MC_OK) << mc_last_error();
  for (std::size_t i = 0; i < 1024; ++i) ASSERT_TRUE(get(client, list.keys[i]) == list.values[i]);
  std::vector<mc_slice> slices;
  for (const std::string& key : list.keys) slices.push_back(slice(key));
  std::vector<mc_status> statuses(1024, MC_INTERNAL);
  EXPECT_EQ(mc_remove_batch(client, slices.data(), 1024, statuses.data(), 0), MC_OK);
  for (const mc_status status : statuses) EXPECT_EQ(status, MC_OK);
}

TEST_P(Batches, ABatchLargerThanThePoolPassesThroughIt) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  PutList list;
  for (std::size_t i = 0; i < 1024; ++i) list.add(key_of(i), content(key_of(i), 30000));
  EXPECT_EQ(mc_put_batch(client, list.ready(), 1024, nullptr), MC_OK) << mc_last_error();
  std::size_t found = 0;
  for (std::size_t i = 0; i < 1024; ++i) {
    const auto bytes = get(client, key_of(i));
    if (!bytes) continue;
    ++found;
    EXPECT_TRUE(*bytes == list.values[i]);
  }
  EXPECT_GT(found, 100u);
  EXPECT_LT(found, 280u);
}

}  // namespace
}  // namespace mc::conformance
