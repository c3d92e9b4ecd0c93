// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one client: each read returns one complete value of the key.
#include <atomic>
#include <cstring>
#include <thread>

#include "conformance/client/agent_fixture.h"
#include "defect.h"

namespace mc::conformance {
namespace {

using Threads = ClientTest;
MC_EVERYWHERE(Threads);

// A value contains its key and its writer; every other byte depends on both.
std::string value_of(std::string_view key, std::uint64_t maker, std::size_t size) {
  std::string value = content(std::string(key) + "/" + std::to_string(maker), size);
  std::memcpy(value.data(), &maker, sizeof maker);
  return value;
}

bool is_value_of(std::string_view key, std::string_view value) {
  std::uint64_t maker = 0;
  if (value.size() < sizeof maker) return false;
  std::memcpy(&maker, value.data(), sizeof maker);
  return value == value_of(key, maker, value.size());
}

struct Tally {
  std::atomic<int> wrong{0}, failed{0}, hits{0};

  void note_wrong(const std::string& key) {
    mark_wrong_bytes(key);
    ++wrong;
  }
};

void hammer(mc_client* client, std::uint64_t me, int rounds, std::size_t keys, Tally& tally) {
  std::uint64_t random = me * 0x9e3779b97f4a7c15ull + 1;
  for (int round = 0; round < rounds; ++round) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const std::string key = "shared." + std::to_string(random % keys);
    const std::size_t size = 8 + (random >> 20) % 30000;
    mc_put_options options = put_options();
    switch ((random >> 40) % 8) {
      case 0:
      case 1:
        options.upsert = (random >> 50) % 2;
        if (put(client, key, value_of(key, random, size), &options) != MC_OK) ++tally.failed;
        break;
      case 2: {
        const mc_status status = remove(client, key);
        if (status != MC_OK && status != MC_NOT_FOUND) ++tally.failed;
        break;
      }
      case 3:
      case 4: {
        mc_view view{};
        if (mc_get_view(client, slice(key), &view) != MC_OK) break;
        ++tally.hits;
        if (!is_value_of(key, bytes_of(view)) || mc_view_verify(&view, slice(key)) != MC_OK)
          tally.note_wrong(key);
        mc_view_release(&view);
        break;
      }
      default: {
        const auto bytes = get(client, key);
        if (!bytes) break;
        ++tally.hits;
        if (!is_value_of(key, *bytes)) tally.note_wrong(key);
      }
    }
  }
}

TEST_P(Threads, EightThreadsOnSharedKeysSeeOnlyWholeValues) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  Tally tally;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    threads.emplace_back([&, i] { hammer(client, i, 2000, 600, tally); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(tally.failed, 0);
  EXPECT_GT(tally.hits, 500);
}

TEST_P(Threads, MoreThreadsThanChannelsShareTheLastOne) {
  serve({{"pool_bytes", "16MiB"}});
  for (const std::uint32_t channels : {1u, 2u, 5u}) {
    mc_client* client = open([&](mc_open_options& o) { o.channel_count = channels; });
    Tally tally;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 1; i <= 12; ++i) {
      threads.emplace_back([&, i] { hammer(client, i, 200, 50, tally); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(tally.wrong, 0);
    EXPECT_EQ(tally.failed, 0);
    close(client);
  }
}

TEST_P(Threads, ThreadsThatComeAndGoDoNotUseUpTheChannels) {
  serve();
  mc_client* client = open([](mc_open_options& o) { o.channel_count = 3; });
  for (int i = 0; i < 100; ++i) {
    std::thread([&] {
      const std::string key = "thread." + std::to_string(i);
      EXPECT_EQ(put(client, key, key), MC_OK) << mc_last_error();
      EXPECT_EQ(get(client, key), key);
    }).join();
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(exists(client, "thread." + std::to_string(i)), MC_OK);
}

TEST_P(Threads, AThreadUsesManyClientsInTurn) {
  serve({{"pool_bytes", "8MiB"}});
  for (int i = 0; i < 20; ++i) {
    mc_client* one = open();
    mc_client* two = open();
    const std::string key = "key." + std::to_string(i);
    ASSERT_EQ(put(one, key, "value"), MC_OK);
    // Each embedded client has a separate pool.
    EXPECT_EQ(exists(two, key), embedded() ? MC_NOT_FOUND : MC_OK);
    EXPECT_EQ(get(one, key), "value");
    close(one);
    close(two);
  }
}

TEST_P(Threads, ManyPutsOfOneKeyStoreExactlyOneValue) {
  serve();
  mc_client* client = open();
  for (int round = 0; round < 20; ++round) {
    const std::string key = "race." + std::to_string(round);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 1; i <= 8; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_EQ(put(client, key, value_of(key, i, 5000)), MC_OK);
        const auto bytes = get(client, key);
        EXPECT_TRUE(bytes && is_value_of(key, *bytes));
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::uint64_t version = stat(client, key).version;
    EXPECT_EQ(put(client, key, "another"), MC_OK);
    EXPECT_EQ(stat(client, key).version, version);
  }
}

TEST_P(Threads, AQueueMayBeUsedByManyThreads) {
  serve();
  mc_client* client = open();
  mc_cq* cq = nullptr;
  ASSERT_EQ(mc_cq_create(client, &cq), MC_OK);
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const std::string key = "t" + std::to_string(t) + "." + std::to_string(i);
        const std::string value = content(key, 700);
        const mc_slice piece = slice(value);
        const mc_put_item item{slice(key), &piece, 1, {nullptr, 0}, MC_OK};
        EXPECT_EQ(mc_put_async(client, cq, &item, 1, nullptr, 0, nullptr), MC_OK);
        mc_completion completions[8];
        completed += static_cast<int>(mc_cq_poll(cq, completions, 8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  until([&] {
    mc_completion completions[8];
    completed += static_cast<int>(mc_cq_poll(cq, completions, 8));
    return completed >= 1200;
  });
  mc_completion late{};
  EXPECT_EQ(mc_cq_poll(cq, &late, 1), 0u);
  EXPECT_EQ(completed, 1200);
  mc_cq_destroy(cq);
  for (int t = 0; t < 4; ++t) EXPECT_EQ(exists(client, "t" + std::to_string(t) + ".299"), MC_OK);
}

}  // namespace
}  // namespace mc::conformance
