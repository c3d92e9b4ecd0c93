// SPDX-License-Identifier: Apache-2.0
//
// Views: bytes in the pool that do not change until they are released.
#include <thread>

#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

using Views = ClientTest;
MC_EVERYWHERE(Views);

constexpr std::size_t kViewedBytes = 64 * 1024;

// Leaves a pool of 8 MiB without adjacent free blocks, so that a larger object is cut into extents.
std::vector<std::string> fill_with_holes(mc_client* client, std::size_t blocks) {
  std::vector<std::string> kept;
  const mc_put_options options = put_options(MC_PIN_HARD);
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::string key = "block." + std::to_string(i);
    EXPECT_EQ(put(client, key, content(key, kViewedBytes), &options), MC_OK)
        << i << mc_last_error();
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::string key = "block." + std::to_string(i);
    if (i % 2 == 1) {
      kept.push_back(key);
      continue;
    }
    EXPECT_EQ(remove(client, key), MC_OK);
  }
  return kept;
}

TEST_P(Views, AViewShowsTheObjectAndItsFacts) {
  serve();
  mc_client* client = open();
  const std::string value = content("key", 12345);
  ASSERT_EQ(put(client, "key", value), MC_OK);
  mc_view view{};
  ASSERT_EQ(mc_get_view(client, slice("key"), &view), MC_OK);
  const mc_stat_info info = stat(client, "key");
  EXPECT_EQ(view.length, value.size());
  EXPECT_EQ(view.size, value.size());
  EXPECT_EQ(view.span_count, 1u);
  EXPECT_EQ(view.version, info.version);
  EXPECT_EQ(view.checksum, info.checksum);
  EXPECT_TRUE(std::string(static_cast<const char*>(view.data), view.size) == value);
  EXPECT_EQ(mc_view_spans(&view, nullptr, 0), 1u);
  EXPECT_EQ(mc_view_verify(&view, slice("key")), MC_OK);
  EXPECT_EQ(mc_view_verify(&view, slice("another key")), MC_CORRUPT)
      << "the sum is seeded with the key";
  mc_view_release(&view);
  EXPECT_EQ(mc_view_spans(&view, nullptr, 0), 0u);
  mc_view_release(&view);
  mc_view zeroed{};
  mc_view_release(&zeroed);
  mc_view_release(nullptr);
}

TEST_P(Views, AMissGivesNoView) {
  serve();
  mc_client* client = open();
  mc_view view{};
  view.pin = 99;
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_get_view(client, slice("key"), &view)));
  mc_view_release(&view);
}

TEST_P(Views, AnObjectCutIntoExtentsGivesItsBytesInAllForms) {
  serve({{"pool_bytes", "8MiB"}, {"session_quota_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 2 * kMiB; });
  const std::vector<std::string> kept = fill_with_holes(client, 120);
  for (const std::size_t size : {kViewedBytes * 10 + 777, kViewedBytes * 3, kViewedBytes * 12}) {
    const std::string key = "large." + std::to_string(size);
    const std::string value = content(key, size);
    ASSERT_EQ(put(client, key, value), MC_OK) << mc_last_error();
    const mc_stat_info info = stat(client, key);
    EXPECT_LE(info.extent_count, MC_MAX_EXTENTS);
    mc_view view{};
    ASSERT_EQ(mc_get_view(client, slice(key), &view), MC_OK);
    EXPECT_EQ(view.length, size);
    EXPECT_EQ(view.span_count, info.extent_count);
    mc_slice spans[MC_MAX_EXTENTS];
    EXPECT_EQ(mc_view_spans(&view, spans, 1), view.span_count);
    EXPECT_EQ(spans[0].data, view.data);
    EXPECT_EQ(spans[0].size, view.size);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < mc_view_spans(&view, spans, MC_MAX_EXTENTS); ++i)
      sum += spans[i].size;
    EXPECT_EQ(sum, size);
    EXPECT_TRUE(bytes_of(view) == value);
    EXPECT_EQ(mc_view_verify(&view, slice(key)), MC_OK);
    EXPECT_TRUE(get(client, key) == value);
    std::string middle(kViewedBytes * 2, '!');
    const std::vector<mc_slice> odd = cut(middle, {1001, 77777, 3});
    std::vector<mc_span> pieces;
    for (const mc_slice& piece : odd) pieces.push_back({const_cast<void*>(piece.data), piece.size});
    mc_get_item item{slice(key),       pieces.data(), pieces.size(),
                     kViewedBytes - 5, middle.size(), MC_OK};
    EXPECT_EQ(mc_get_batch(client, &item, 1), MC_OK);
    EXPECT_TRUE(middle == value.substr(kViewedBytes - 5, middle.size()));
    mc_view_release(&view);
  }
  EXPECT_GT(stat(client, "large." + std::to_string(kViewedBytes * 12)).extent_count, 1u);
  for (const std::string& key : kept)
    EXPECT_TRUE(get(client, key) == content(key, kViewedBytes)) << key;
}

TEST_P(Views, ViewsKeepTheirBytesWhileThePoolIsFilledManyTimesOver) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  constexpr std::size_t kHeld = 40;
  mc_view views[kHeld] = {};
  for (std::size_t i = 0; i < kHeld; ++i) {
    const std::string key = "held." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kViewedBytes)), MC_OK);
    ASSERT_EQ(mc_get_view(client, slice(key), &views[i]), MC_OK);
    if (i % 3 == 0) {
      ASSERT_EQ(remove(client, key), MC_OK);
    }
  }
  for (std::size_t i = 0; i < 8 * 128; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kViewedBytes - i % 3000)), MC_OK) << mc_last_error();
  }
  for (std::size_t i = 0; i < kHeld; ++i) {
    const std::string key = "held." + std::to_string(i);
    EXPECT_TRUE(bytes_of(views[i]) == content(key, kViewedBytes)) << i;
    EXPECT_EQ(mc_view_verify(&views[i], slice(key)), MC_OK);
    mc_view_release(&views[i]);
  }
  // All space is free again: hard pins fill the pool as if there had been no views.
  const mc_put_options options = put_options(MC_PIN_HARD);
  for (std::size_t i = 0; i < 110; ++i) {
    const std::string key = "after." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kViewedBytes), &options), MC_OK)
        << i << ": " << mc_last_error();
  }
}

TEST_P(Views, TheSpaceOfARemovedObjectComesBackWhenItsLastViewIsReleased) {
  serve({{"pool_bytes", "8MiB"}, {"session_quota_bytes", "8MiB"}});
  mc_client* client = open([](mc_open_options& o) { o.staging_bytes = 7 * kMiB; });
  const std::string large = content("large", 6 * kMiB);
  ASSERT_EQ(put(client, "large", large), MC_OK);
  mc_view first{}, second{};
  ASSERT_EQ(mc_get_view(client, slice("large"), &first), MC_OK);
  ASSERT_EQ(mc_get_view(client, slice("large"), &second), MC_OK);
  ASSERT_EQ(remove(client, "large"), MC_OK);
  mc_put_options brief = put_options(MC_PIN_NONE, kSecondNs / 20);
  const std::string next = content("next", 6 * kMiB);
  EXPECT_TRUE(says(MC_NO_SPACE, put(client, "next", next, &brief)));
  mc_view_release(&first);
  EXPECT_TRUE(says(MC_NO_SPACE, put(client, "next", next, &brief)));
  EXPECT_EQ(mc_view_verify(&second, slice("large")), MC_OK);
  mc_view_release(&second);
  EXPECT_EQ(put(client, "next", next), MC_OK) << mc_last_error();
  EXPECT_TRUE(get(client, "next") == next);
}

TEST_P(Views, AThreadHolds1023ViewsAndTheNextIsBusy) {
  serve();
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", "value"), MC_OK);
  std::vector<mc_view> views(MC_MAX_VIEWS_PER_CHANNEL + 1);
  for (std::size_t i = 0; i < MC_MAX_VIEWS_PER_CHANNEL; ++i) {
    ASSERT_EQ(mc_get_view(client, slice("key"), &views[i]), MC_OK) << i;
  }
  EXPECT_TRUE(says(MC_BUSY, mc_get_view(client, slice("key"), &views.back())));
  EXPECT_EQ(get(client, "key"), "value") << "a get needs no view";
  EXPECT_EQ(stat(client, "key").length, 5u);
  // Another thread has other pin slots.
  std::thread([&] {
    mc_view own{};
    EXPECT_EQ(mc_get_view(client, slice("key"), &own), MC_OK);
    mc_view_release(&own);
  }).join();
  mc_view_release(&views[500]);
  EXPECT_EQ(mc_get_view(client, slice("key"), &views[500]), MC_OK);
  for (mc_view& view : views) mc_view_release(&view);
}

TEST_P(Views, AnyThreadMayReleaseAViewAndItOutlivesTheThreadThatTookIt) {
  serve({{"pool_bytes", "8MiB"}});
  mc_client* client = open();
  ASSERT_EQ(put(client, "key", content("key", kViewedBytes)), MC_OK);
  mc_view view{};
  std::thread([&] { EXPECT_EQ(mc_get_view(client, slice("key"), &view), MC_OK); }).join();
  ASSERT_EQ(remove(client, "key"), MC_OK);
  for (int i = 0; i < 400; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_EQ(put(client, key, content(key, kViewedBytes)), MC_OK);
  }
  EXPECT_TRUE(bytes_of(view) == content("key", kViewedBytes));
  std::thread([&] { mc_view_release(&view); }).join();
}

TEST_P(Views, ABatchOfViewsHasAStatusForEach) {
  serve();
  mc_client* client = open();
  const std::string keys[] = {"a", "missing", "", "b", std::string(1025, 'x')};
  ASSERT_EQ(put(client, "a", "value a"), MC_OK);
  ASSERT_EQ(put(client, "b", "value b"), MC_OK);
  std::vector<mc_slice> slices;
  for (const std::string& key : keys) slices.push_back(slice(key));
  mc_view views[5] = {};
  mc_status statuses[5] = {};
  EXPECT_TRUE(says(MC_NOT_FOUND, mc_get_view_batch(client, slices.data(), 5, views, statuses)));
  EXPECT_EQ(statuses[0], MC_OK);
  EXPECT_EQ(statuses[1], MC_NOT_FOUND);
  EXPECT_EQ(statuses[2], MC_INVALID_ARGUMENT);
  EXPECT_EQ(statuses[3], MC_OK);
  EXPECT_EQ(statuses[4], MC_INVALID_ARGUMENT);
  EXPECT_EQ(bytes_of(views[0]), "value a");
  EXPECT_EQ(bytes_of(views[3]), "value b");
  for (mc_view& view : views) mc_view_release(&view);
}

}  // namespace
}  // namespace mc::conformance
