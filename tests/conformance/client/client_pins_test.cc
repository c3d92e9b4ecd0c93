// SPDX-License-Identifier: Apache-2.0
//
// Eviction under pressure: parents, hard pins, soft pins, and a pool without evictable objects.
#include <thread>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Pins = ClientTest;
MC_EVERYWHERE(Pins);

constexpr std::size_t kBlock = 64 * 1024;
std::string key_of(std::size_t i) { return "pinned." + std::to_string(i); }

TEST_P(Pins, AFullPoolGivesUpObjectsAndNeverWrongBytes) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::string key = "key." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kBlock - i % 777)), MC_OK) << mc_last_error();
  }
  std::size_t found = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::string key = "key." + std::to_string(i);
    const auto bytes = get(client, key);
    if (!bytes) continue;
    ++found;
    EXPECT_TRUE(*bytes == content(key, kBlock - i % 777)) << key;
  }
  EXPECT_GE(found, 90u);
  EXPECT_LE(found, 128u);
}

TEST_P(Pins, AParentNeverDisappearsBeforeItsChild) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  constexpr std::size_t kChain = 24;
  const auto link = [](std::size_t chain, std::size_t i) {
    return "chain." + std::to_string(chain) + "." + std::to_string(i);
  };
  for (std::size_t chain = 0; chain < 60; ++chain) {
    for (std::size_t i = 0; i < kChain; ++i) {
      const std::string parent = i == 0 ? "" : link(chain, i - 1);
      mc_put_options options = put_options();
      options.parent = i == 0 ? mc_slice{nullptr, 0} : slice(parent);
      const std::string key = link(chain, i);
      ASSERT_EQ(put(client, key, content(key, 20000), &options), MC_OK) << mc_last_error();
    }
    for (std::size_t old = 0; old <= chain; ++old) {
      bool gone = false;
      for (std::size_t i = 0; i < kChain; ++i) {
        const bool there = exists(client, link(old, i)) == MC_OK;
        ASSERT_FALSE(gone && there) << link(old, i) << " outlived its parent";
        gone |= !there;
      }
    }
  }
  EXPECT_EQ(exists(client, link(59, kChain - 1)), MC_OK) << "a chain being put keeps its end";
}

TEST_P(Pins, HardPinsAreNeverEvicted) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  const mc_put_options hard = put_options(MC_PIN_HARD);
  for (std::size_t i = 0; i < 50; ++i) {
    ASSERT_EQ(put(client, key_of(i), content(key_of(i), kBlock), &hard), MC_OK);
    EXPECT_EQ(stat(client, key_of(i)).pin, MC_PIN_HARD);
  }
  for (std::size_t i = 0; i < 600; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kBlock)), MC_OK) << mc_last_error();
  }
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(get(client, key_of(i)) == content(key_of(i), kBlock)) << i;
  }
}

TEST_P(Pins, APoolFullOfHardPinsHasNoSpaceAtTheDeadlineAndNotBefore) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  const mc_put_options hard = put_options(MC_PIN_HARD, kSecondNs / 20);
  std::size_t stored = 0;
  while (put(client, key_of(stored), content(key_of(stored), kBlock), &hard) == MC_OK) ++stored;
  EXPECT_TRUE(says(MC_NO_SPACE, put(client, "one more", content("x", kBlock), &hard)));
  EXPECT_GE(stored, 100u);
  // A put with a long deadline still waits when a later put with a short deadline has given up.
  const mc_put_options patient = put_options(MC_PIN_NONE, 100 * kSecondNs);
  mc_status late = MC_INTERNAL;
  std::thread waiting([&] { late = put(client, "patient", content("patient", kBlock), &patient); });
  EXPECT_TRUE(says(MC_NO_SPACE, put(client, "one more", content("x", kBlock), &hard)));
  EXPECT_EQ(exists(client, "patient"), MC_NOT_FOUND);
  for (std::size_t i = 0; i < stored; ++i) {
    ASSERT_TRUE(get(client, key_of(i)) == content(key_of(i), kBlock)) << i;
  }
  const std::string gone[] = {key_of(0), key_of(1)};
  const mc_slice keys[] = {slice(gone[0]), slice(gone[1])};
  mc_status statuses[2];
  EXPECT_EQ(mc_remove_batch(client, keys, 2, statuses, 0), MC_OK);
  waiting.join();
  EXPECT_EQ(late, MC_OK);
  EXPECT_TRUE(get(client, "patient") == content("patient", kBlock));
}

TEST_P(Pins, SoftPinsGoWhenNothingElseIsLeft) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  const mc_put_options soft = put_options(MC_PIN_SOFT);
  for (std::size_t i = 0; i < 40; ++i) {
    ASSERT_EQ(put(client, key_of(i), content(key_of(i), kBlock), &soft), MC_OK);
  }
  const mc_stat_info info = stat(client, key_of(0));
  EXPECT_EQ(info.pin, MC_PIN_SOFT);
  EXPECT_GT(info.pin_left_ms, 3000000u) << "an hour, if nothing else is said";
  EXPECT_LE(info.pin_left_ms, 3600000u);
  for (std::size_t i = 0; i < 600; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kBlock)), MC_OK);
  }
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(exists(client, key_of(i)), MC_OK) << i;
  const mc_put_options hard = put_options(MC_PIN_HARD);
  for (std::size_t i = 0; i < 110; ++i) {
    const std::string key = "hard." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kBlock), &hard), MC_OK) << i << ": " << mc_last_error();
  }
  for (std::size_t i = 0; i < 110; ++i)
    EXPECT_EQ(exists(client, "hard." + std::to_string(i)), MC_OK);
}

TEST_P(Pins, ASoftPinEndsAtItsTime) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  mc_put_options brief = put_options(MC_PIN_SOFT);
  brief.pin_ttl_ms = 1;
  ASSERT_EQ(put(client, "brief", content("brief", kBlock), &brief), MC_OK);
  until([&] { return stat(client, "brief").pin == MC_PIN_NONE; });
  EXPECT_EQ(stat(client, "brief").pin_left_ms, 0u);
  EXPECT_GT(push_out(client, "brief", kBlock), 50u);
}

TEST_P(Pins, APinCanBeChanged) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", content("key", kBlock)), MC_OK);
  const std::uint64_t version = stat(client, "key").version;
  EXPECT_EQ(mc_set_pin(client, slice("key"), MC_PIN_SOFT, 60000, 0), MC_OK);
  EXPECT_EQ(stat(client, "key").pin, MC_PIN_SOFT);
  EXPECT_LE(stat(client, "key").pin_left_ms, 60000u);
  EXPECT_EQ(mc_set_pin(client, slice("key"), MC_PIN_HARD, 0, 0), MC_OK);
  EXPECT_EQ(stat(client, "key").pin, MC_PIN_HARD);
  EXPECT_EQ(stat(client, "key").pin_left_ms, 0u);
  EXPECT_EQ(stat(client, "key").version, version);
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(put(client, "flood." + std::to_string(i), content("x", kBlock)), MC_OK);
  }
  EXPECT_TRUE(get(client, "key") == content("key", kBlock));
  EXPECT_EQ(mc_set_pin(client, slice("key"), MC_PIN_NONE, 0, 0), MC_OK);
  EXPECT_EQ(stat(client, "key").pin, MC_PIN_NONE);
  push_out(client, "key", kBlock);
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_set_pin(client, slice("key"), MC_PIN_HARD, 0, 0)));
}

TEST_P(Pins, AHardPinnedObjectCanBeRemovedAndReplaced) {
  serve();
  mc_client* client = open();
  mc_put_options hard = put_options(MC_PIN_HARD);
  ASSERT_EQ(put(client, "key", "value", &hard), MC_OK);
  hard.upsert = 1;
  hard.pin = MC_PIN_NONE;
  ASSERT_EQ(put(client, "key", "next", &hard), MC_OK);
  EXPECT_EQ(get(client, "key"), "next");
  EXPECT_EQ(stat(client, "key").pin, MC_PIN_NONE);
  EXPECT_EQ(remove(client, "key"), MC_OK);
}

TEST_P(Pins, LiveObjectsStayWithinTheCapacity) {
  serve({{"pool_bytes", "16MiB"}, {"capacity_bytes", "2MiB"}});
  mc_client* client = open();
  for (std::size_t i = 0; i < 200; ++i) {
    const std::string key = "key." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, 100000)), MC_OK) << mc_last_error();
    std::uint64_t live = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      live += exists(client, "key." + std::to_string(j)) == MC_OK ? 100000 : 0;
    }
    ASSERT_LE(live, 2 * kMiB);
  }
}

}  // namespace
}  // namespace mc::conformance
