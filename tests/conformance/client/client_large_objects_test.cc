// SPDX-License-Identifier: Apache-2.0
//
// Large objects in a pool full of small objects: eviction frees one contiguous place at the cost of
// few objects.
#include <random>
#include <thread>
#include <utility>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

constexpr std::size_t kSmall = 4000;  // rounded up to 4 KiB of the pool
constexpr std::size_t kLarge = 16 * kMiB;
constexpr int kPoolMiB = 128;
constexpr int kFill = kPoolMiB * 256 * 5 / 4;

std::string small_key(int i) { return "small." + std::to_string(i); }
// Cheap to make, and different for each key.
std::string small_value(int i) { return content(small_key(i), 64) + std::string(kSmall - 64, 's'); }
std::string large_value(int i) {
  return content(std::to_string(i), 4096) + std::string(kLarge - 4096, 'L');
}

class LargeObjects : public AgentTest {
 protected:
  mc_client* open_writer() {
    return open([](mc_open_options& o) {
      o.staging_bytes = 2 * kLarge;
      o.timeout_ns = 30 * kSecondNs;
    });
  }
  // A full pool whose policy evicts in an order unrelated to addresses. Every `hard`-th object gets
  // a hard pin.
  void fill(mc_client* client, int hard = 0) {
    const mc_put_options pinned = put_options(MC_PIN_HARD);
    for (int i = 0; i < kFill; ++i) {
      const bool pins = hard != 0 && i % hard == 0;
      ASSERT_EQ(put(client, small_key(i), small_value(i), pins ? &pinned : nullptr), MC_OK) << i;
    }
    // Store the objects again in random order, so that old objects lie at random addresses.
    std::mt19937 random(7);
    for (int i = 0; i < kFill; ++i) {
      const int key = static_cast<int>(random() % kFill);
      const bool pins = hard != 0 && key % hard == 0;
      static_cast<void>(remove(client, small_key(key)));
      ASSERT_EQ(put(client, small_key(key), small_value(key), pins ? &pinned : nullptr), MC_OK);
    }
  }
  // Each large object evicts no more than a few times its size, far less than the whole pool.
  void put_large_ones(mc_client* client) {
    for (int i = 0; i < 3; ++i) {
      const std::string key = "large." + std::to_string(i);
      const std::uint64_t before = evicted_bytes();
      ASSERT_EQ(put(client, key, large_value(i)), MC_OK) << mc_last_error();
      EXPECT_TRUE(get(client, key) == large_value(i));
      EXPECT_LE(evicted_bytes() - before, 3 * kLarge) << key;
    }
  }
  void expect_small_ones_sound(mc_client* client) {
    for (int i = 0; i < kFill; ++i) {
      const auto bytes = get(client, small_key(i));
      if (bytes) {
        EXPECT_TRUE(*bytes == small_value(i)) << i;
      }
    }
  }
  std::uint64_t evicted_bytes() { return tenant()["evicted_bytes"].asUInt64(); }
};
MC_WITH_AGENT(LargeObjects);

TEST_P(LargeObjects, AFullPoolOfSmallObjectsEvictsFewForLargeObjects) {
  serve({{"pool_bytes", std::to_string(kPoolMiB) + "MiB"}, {"policy", "lru"}});
  mc_client* client = open_writer();
  fill(client);
  ASSERT_GT(evicted_bytes(), 0u) << "the pool is full";
  put_large_ones(client);
  expect_small_ones_sound(client);
}

TEST_P(LargeObjects, HardPinsViewsAndReservationsSurviveLargePuts) {
  serve({{"pool_bytes", std::to_string(kPoolMiB) + "MiB"}, {"policy", "lru"}});
  mc_client* client = open_writer();
  mc_client* reader = open();
  fill(client, 10);
  std::vector<std::pair<int, mc_view>> views;
  for (int i = 5; i < kFill; i += 300) {
    mc_view view{};
    if (mc_get_view(reader, slice(small_key(i)), &view) == MC_OK) views.emplace_back(i, view);
  }
  ASSERT_GT(views.size(), 20u);
  std::vector<mc_reservation*> reservations;
  for (int i = 0; i < 20; ++i) {
    mc_reservation* reservation = nullptr;
    ASSERT_EQ(mc_reserve(client, kSmall, 0, &reservation), MC_OK) << mc_last_error();
    reservations.push_back(reservation);
  }
  put_large_ones(client);
  for (auto& [i, view] : views) {
    EXPECT_TRUE(bytes_of(view) == small_value(i)) << i;
    mc_view_release(&view);
  }
  for (mc_reservation* one : reservations) mc_abandon(one);
  for (int i = 0; i < kFill; i += 10) {
    ASSERT_TRUE(get(client, small_key(i)) == small_value(i)) << i;
  }
  expect_small_ones_sound(client);
}

TEST_P(LargeObjects, SeveralClientsPutLargeObjectsBesideSmallPuts) {
  serve({{"pool_bytes", std::to_string(kPoolMiB) + "MiB"}});
  mc_client* client = open_writer();
  fill(client);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer) {
    mc_client* own = open_writer();
    writers.emplace_back([own, writer] {
      const std::size_t size = kLarge >> writer;
      for (int i = 0; i < 4; ++i) {
        const std::string key = std::to_string(writer) + "." + std::to_string(i);
        EXPECT_EQ(put(own, key, large_value(i).substr(0, size)), MC_OK) << mc_last_error();
        const auto bytes = get(own, key);
        EXPECT_TRUE(!bytes || *bytes == large_value(i).substr(0, size));
      }
    });
  }
  for (int i = 0; i < 3000; ++i) {
    const std::string key = "during." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, 500)), MC_OK) << mc_last_error();
  }
  for (std::thread& writer : writers) writer.join();
  expect_small_ones_sound(client);
}

}  // namespace
}  // namespace mc::conformance
