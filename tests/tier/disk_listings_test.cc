// SPDX-License-Identifier: Apache-2.0
//
// Pages of the objects on model disks: each object once, and no client holds up another one.
#include "agent/tiering/disk_listings.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tier/tiered_rig.h"

namespace mc::agent {
namespace {

class DiskListingsTest : public TieredRig {
 protected:
  std::uint64_t next_sequence() { return store().index().header().next_sequence.load_relaxed(); }
  std::uint64_t begin_listing(const std::string& prefix = "") {
    return pools_->begin_listing(*tenant_, prefix, next_sequence(), rig_.now_ns()).value_or(0);
  }
  using Answer = std::optional<std::optional<DiskListings::Page>>;
  void ask(DiskListings::PageId id, std::size_t limit, Answer& answer) {
    pools_->next_page(*tenant_, id, limit, rig_.now_ns(),
                      [&](std::optional<DiskListings::Page> page) { answer = std::move(page); });
  }
  std::optional<DiskListings::Page> page_of(DiskListings::PageId id, std::size_t limit = 7) {
    Answer answer;
    ask(id, limit, answer);
    for (int i = 0; i < 100'000 && !answer; ++i) turn();
    EXPECT_TRUE(answer);
    return answer.value_or(std::nullopt);
  }
  std::optional<DiskListings::Page> next_page(std::uint64_t listing, std::size_t limit = 7) {
    return page_of({listing, pages_[listing]++}, limit);
  }
  std::multiset<std::string> rest_of(std::uint64_t listing, std::size_t limit = 7) {
    std::multiset<std::string> keys;
    for (bool more = true; more;) {
      const auto page = next_page(listing, limit);
      EXPECT_TRUE(page);
      if (!page) break;
      EXPECT_LE(page->objects.size(), limit);
      for (const DiskListings::Object& object : page->objects) {
        keys.insert(object.key);
        EXPECT_EQ(object.length, kObjectBytes);
      }
      more = page->more;
    }
    return keys;
  }
  std::multiset<std::string> put_on_disk(const std::string& prefix, int count) {
    std::multiset<std::string> keys;
    for (int i = 0; i < count; ++i) {
      const std::string key = prefix + std::to_string(i);
      put(key, 1);
      evict(key);
      settle();
      keys.insert(key);
    }
    return keys;
  }

  std::map<std::uint64_t, std::uint64_t> pages_;  // of each listing, that were asked for
};

TEST_F(DiskListingsTest, EachObjectOnADiskOrOnItsWayComesOnce) {
  auto expected = put_on_disk("a/", 90);
  put_on_disk("b/", 10);
  put("a/last", 1);
  evict("a/last");
  expected.insert("a/last");
  EXPECT_EQ(rest_of(begin_listing("a/")), expected);
  settle();
  EXPECT_EQ(rest_of(begin_listing("a/"), 1000), expected);
  EXPECT_EQ(rest_of(begin_listing("none/")).size(), 0u);
  EXPECT_EQ(remove("a/3"), MC_OK);
  EXPECT_EQ(remove("a/last"), MC_OK);
  EXPECT_EQ(rest_of(begin_listing("a/")).size(), 89u);
}

TEST_F(DiskListingsTest, AnObjectThatThePoolHadBeforeTheListingIsLeftOut) {
  put_on_disk("a/", 3);
  for (int reads = 0; reads < 2; ++reads) EXPECT_TRUE(gets("a/1", 1));
  ASSERT_TRUE(in_pool("a/1") && on_disk("a/1"));
  const std::uint64_t listing = begin_listing();
  for (int reads = 0; reads < 2; ++reads) EXPECT_TRUE(gets("a/2", 1));
  ASSERT_TRUE(in_pool("a/2"));
  const std::multiset<std::string> expected{"a/0", "a/2"};
  EXPECT_EQ(rest_of(listing), expected);
}

TEST_F(DiskListingsTest, AListingThatIsLeftHoldsUpNoOther) {
  const auto keys = put_on_disk("a/", 90);
  ASSERT_TRUE(next_page(begin_listing()));
  EXPECT_EQ(rest_of(begin_listing()), keys);
}

TEST_F(DiskListingsTest, AListingEndsWhenManyOthersHaveBegun) {
  const auto keys = put_on_disk("a/", 10);
  const std::uint64_t first = begin_listing(), second = begin_listing();
  ASSERT_TRUE(next_page(first));
  for (std::size_t i = 0; i + 1 < DiskListings::kMost; ++i) begin_listing();
  EXPECT_FALSE(next_page(second)) << "used least recently";
  EXPECT_EQ(rest_of(first).size(), 3u);
  EXPECT_FALSE(next_page(first)) << "over";
  EXPECT_FALSE(next_page(12345));
}

TEST_F(DiskListingsTest, AListingOfWhichNobodyAsksForAPageEnds) {
  put_on_disk("a/", 20);
  const std::uint64_t listing = begin_listing();
  ASSERT_TRUE(next_page(listing));
  pools_->advance(rig_.now_ns() + DiskListings::kIdleNs);
  ASSERT_TRUE(next_page(listing));
  pools_->advance(rig_.now_ns() + DiskListings::kIdleNs + 1);
  EXPECT_FALSE(next_page(listing));
}

TEST_F(DiskListingsTest, AnAnswerIsTheNextPageOrNone) {
  put_on_disk("a/", 20);
  const std::uint64_t listing = begin_listing();
  EXPECT_FALSE(page_of({listing, 1}));
  const auto first = page_of({listing, 0});
  ASSERT_TRUE(first);
  EXPECT_FALSE(page_of({listing, 0})) << "its objects have left the listing";
  EXPECT_TRUE(page_of({listing, 1}));
}

TEST_F(DiskListingsTest, ARequestThatIsRepeatedGetsThePage) {
  put_on_disk("a/", 20);
  const std::uint64_t listing = begin_listing();
  Answer before;
  ask({listing, 0}, 7, before);
  const auto page = page_of({listing, 0});
  ASSERT_TRUE(before && page);
  EXPECT_FALSE(*before);
  EXPECT_EQ(page->objects.size(), 7u);
}

TEST_F(DiskListingsTest, ListingsThatAreBeingReadEndForNoOther) {
  put_on_disk("a/", 20);
  std::vector<std::uint64_t> listings;
  std::vector<Answer> answers(DiskListings::kMost);
  for (std::size_t i = 0; i < DiskListings::kMost; ++i) {
    listings.push_back(begin_listing());
    ask({listings.back(), 0}, 7, answers[i]);
  }
  EXPECT_EQ(begin_listing(), 0u);
  for (int i = 0; i < 100'000 && !answers.back(); ++i) turn();
  for (const Answer& answer : answers) EXPECT_TRUE(answer && *answer);
  EXPECT_NE(begin_listing(), 0u);
}

TEST_F(DiskListingsTest, AListingWaitsForTheRecovery) {
  const auto keys = put_on_disk("a/", 30);
  pools_.reset();
  rig_.kill();
  open();
  EXPECT_EQ(rest_of(begin_listing()), keys);
}

}  // namespace
}  // namespace mc::agent
