// SPDX-License-Identifier: Apache-2.0
//
// Groups: published together or not at all, and evicted together.
#include "conformance/client/agent_fixture.h"

namespace mc::conformance {
namespace {

class Groups : public ClientTest {
 protected:
  mc_group* begin() {
    mc_group* group = nullptr;
    EXPECT_EQ(mc_group_begin(client_, &group), MC_OK) << mc_last_error();
    return group;
  }
  mc_status add(mc_group* group, std::string_view key, std::string_view value) {
    mc_put_options options = put_options();
    options.group = group;
    return put(client_, key, value, &options);
  }
  std::string key_of(std::size_t i) { return "layer." + std::to_string(i); }

  mc_client* client_ = nullptr;
};
MC_EVERYWHERE(Groups);

TEST_P(Groups, MembersAppearAllAtOnceAtTheCommit) {
  serve();
  client_ = open();
  mc_group* group = begin();
  for (std::size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(add(group, key_of(i), content(key_of(i), 1 + i * 333)), MC_OK) << mc_last_error();
  }
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(exists(client_, key_of(i)), MC_NOT_FOUND);
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  const std::uint64_t number = stat(client_, key_of(0)).group;
  EXPECT_NE(number, 0u);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(get(client_, key_of(i)) == content(key_of(i), 1 + i * 333)) << i;
    EXPECT_EQ(stat(client_, key_of(i)).group, number);
  }
  mc_view view{};
  ASSERT_EQ(mc_get_view(client_, slice(key_of(7)), &view), MC_OK);
  EXPECT_EQ(mc_view_verify(&view, slice(key_of(7))), MC_OK);
  mc_view_release(&view);
}

TEST_P(Groups, TwoGroupsHaveDifferentNumbers) {
  serve();
  client_ = open();
  for (const char* key : {"a", "b"}) {
    mc_group* group = begin();
    ASSERT_EQ(add(group, key, "value"), MC_OK);
    ASSERT_EQ(mc_group_commit(group, 0), MC_OK);
  }
  EXPECT_NE(stat(client_, "a").group, stat(client_, "b").group);
}

TEST_P(Groups, AnAbortedGroupLeavesNothingAndGivesItsSpaceBack) {
  serve({{"pool_bytes", "8MiB"}});
  client_ = open([](mc_open_options& o) { o.staging_bytes = 4 * kMiB; });
  for (int round = 0; round < 20; ++round) {
    mc_group* group = begin();
    for (std::size_t i = 0; i < 10; ++i) {
      ASSERT_EQ(add(group, key_of(i), content(key_of(i), 300000)), MC_OK)
          << round << ": " << mc_last_error();
    }
    mc_group_abort(group);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(exists(client_, key_of(i)), MC_NOT_FOUND);
  }
  mc_group_abort(nullptr);
}

TEST_P(Groups, AnEmptyGroupCommits) {
  serve();
  client_ = open();
  EXPECT_EQ(mc_group_commit(begin(), 0), MC_OK);
  mc_group_abort(begin());
}

TEST_P(Groups, AMemberThatFailsAbortsAll) {
  serve({{"pool_bytes", "8MiB"}});
  client_ = open([](mc_open_options& o) { o.staging_bytes = 4 * kMiB; });
  mc_group* group = begin();
  ASSERT_EQ(add(group, "first", "value"), MC_OK);
  EXPECT_NE(add(group, "too large", content("x", 9 * kMiB)), MC_OK);
  ASSERT_EQ(add(group, "last", "value"), MC_OK);
  EXPECT_TRUE(says(MC_GROUP_ABORTED, mc_group_commit(group, 0)));
  for (const char* key : {"first", "too large", "last"})
    EXPECT_EQ(exists(client_, key), MC_NOT_FOUND);
}

TEST_P(Groups, AMemberThatExistsIsLeftAsItIs) {
  serve();
  client_ = open();
  ASSERT_EQ(put(client_, "there", "before"), MC_OK);
  mc_group* group = begin();
  ASSERT_EQ(add(group, "new", "value"), MC_OK);
  ASSERT_EQ(add(group, "there", "after"), MC_OK);
  ASSERT_EQ(add(group, "new", "twice in the group"), MC_OK);
  EXPECT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  EXPECT_EQ(get(client_, "there"), "before");
  EXPECT_EQ(get(client_, "new"), "value");
  EXPECT_EQ(stat(client_, "there").group, 0u);
}

TEST_P(Groups, AnUpsertingGroupReplacesItsKeys) {
  serve();
  client_ = open();
  ASSERT_EQ(put(client_, "there", "before"), MC_OK);
  mc_group* group = begin();
  mc_put_options options = put_options();
  options.group = group;
  options.upsert = 1;
  ASSERT_EQ(put(client_, "there", "after", &options), MC_OK);
  EXPECT_EQ(get(client_, "there"), "before");
  EXPECT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  EXPECT_EQ(get(client_, "there"), "after");
}

TEST_P(Groups, ABatchJoinsAGroup) {
  serve();
  client_ = open();
  mc_group* group = begin();
  const std::string keys[] = {"a", "b", "c"};
  const std::string values[] = {content("a", 1000), content("b", 2000), content("c", 3000)};
  mc_slice pieces[3];
  mc_put_item items[3];
  for (int i = 0; i < 3; ++i) {
    pieces[i] = slice(values[i]);
    items[i] = {slice(keys[i]), &pieces[i], 1, {nullptr, 0}, MC_INTERNAL};
  }
  items[2].parent = slice(keys[1]);
  mc_put_options options = put_options(MC_PIN_SOFT);
  options.group = group;
  ASSERT_EQ(mc_put_batch(client_, items, 3, &options), MC_OK);
  EXPECT_EQ(exists(client_, "a"), MC_NOT_FOUND);
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(get(client_, keys[i]) == values[i]);
    EXPECT_EQ(stat(client_, keys[i]).pin, MC_PIN_SOFT);
  }
  EXPECT_NE(stat(client_, "c").parent_hash, 0u);
}

TEST_P(Groups, AGroupIsEvictedTogether) {
  serve({{"pool_bytes", "8MiB"}});
  client_ = open();
  mc_group* group = begin();
  for (std::size_t i = 0; i < 16; ++i) {
    ASSERT_EQ(add(group, key_of(i), content(key_of(i), 20000)), MC_OK);
  }
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  for (std::size_t i = 0; i < 2000; ++i) {
    const std::string key = "flood." + std::to_string(i);
    ASSERT_EQ(put(client_, key, content(key, 50000)), MC_OK);
    std::size_t there = 0;
    for (std::size_t m = 0; m < 16; ++m) there += exists(client_, key_of(m)) == MC_OK ? 1 : 0;
    ASSERT_TRUE(there == 0 || there == 16) << there << " of 16 after " << i;
    if (there == 0) return;
  }
  FAIL() << "the group was never evicted";
}

TEST_P(Groups, AGroupHas1024MembersAndNotOneMore) {
  serve();
  client_ = open();
  mc_group* group = begin();
  for (std::size_t i = 0; i < MC_MAX_GROUP_ITEMS; ++i) {
    ASSERT_EQ(add(group, key_of(i), content(key_of(i), 500)), MC_OK)
        << i << ": " << mc_last_error();
  }
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  for (std::size_t i = 0; i < MC_MAX_GROUP_ITEMS; ++i) {
    ASSERT_TRUE(get(client_, key_of(i)) == content(key_of(i), 500)) << i;
  }
  group = begin();
  for (std::size_t i = 0; i < MC_MAX_GROUP_ITEMS; ++i)
    ASSERT_EQ(add(group, "b" + key_of(i), "x"), MC_OK);
  EXPECT_TRUE(says(MC_TOO_LARGE, add(group, "one more", "x")));
  EXPECT_TRUE(says(MC_GROUP_ABORTED, mc_group_commit(group, 0)));
  EXPECT_EQ(exists(client_, "b" + key_of(0)), MC_NOT_FOUND);
}

TEST_P(Groups, AGroupLargerThanTheCapacityIsAbortedAsAWhole) {
  serve({{"pool_bytes", "16MiB"}, {"capacity_bytes", "2MiB"}});
  client_ = open([](mc_open_options& o) { o.staging_bytes = 6 * kMiB; });
  mc_group* group = begin();
  for (std::size_t i = 0; i < 20; ++i) {
    ASSERT_EQ(add(group, key_of(i), content(key_of(i), 200000)), MC_OK) << mc_last_error();
  }
  EXPECT_NE(mc_group_commit(group, kSecondNs / 20), MC_OK);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(exists(client_, key_of(i)), MC_NOT_FOUND) << i;
  ASSERT_EQ(put(client_, "key", "value"), MC_OK);
  EXPECT_EQ(get(client_, "key"), "value");
}

TEST_P(Groups, ALargeMemberBesideSmallOnesIsCopiedWhole) {
  serve({{"pool_bytes", "64MiB"}});
  client_ = open([](mc_open_options& o) { o.staging_bytes = 24 * kMiB; });
  mc_group* group = begin();
  const std::size_t sizes[] = {1, 9 * kMiB + 1, 256, 7 * kMiB, 255};
  for (const std::size_t size : sizes) {
    ASSERT_EQ(add(group, std::to_string(size), content(std::to_string(size), size)), MC_OK);
  }
  ASSERT_EQ(mc_group_commit(group, 0), MC_OK) << mc_last_error();
  for (const std::size_t size : sizes) {
    EXPECT_TRUE(get(client_, std::to_string(size)) == content(std::to_string(size), size));
  }
}

}  // namespace
}  // namespace mc::conformance
