// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/drops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libmc/base/clock.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;

constexpr KeyHash kKey{1, 2};
constexpr NodeId kHolder = 7;
constexpr NodeId kOther = 8;
constexpr std::uint64_t kEver = UINT64_MAX;

class DropsTest : public ::testing::Test {
 protected:
  Drops::Holdings open(std::uint64_t up_to_version = UINT64_MAX) const {
    Drops::Holdings holdings;
    drops_.add_open(holdings, kKey, up_to_version);
    return holdings;
  }
  // As a master removes a key: the removal waits for the open orders, too.
  void remove(const Drops::Holdings& found, std::uint64_t deadline_ns = kEver) {
    Drops::Holdings holdings = open();
    holdings.insert(holdings.end(), found.begin(), found.end());
    drops_.remove(holdings, ++removal_, deadline_ns,
                  [this](std::uint32_t unconfirmed) { unconfirmed_.push_back(unconfirmed); });
  }

  Drops drops_{[](NodeId) { return nullptr; }, 1, 0};  // no holder has a link
  std::uint64_t removal_ = 0;
  std::vector<std::uint32_t> unconfirmed_;  // of the removals that have ended
};

TEST_F(DropsTest, ARepeatedRemovalOrdersEachHolderOnce) {
  remove({{kKey, 1, kHolder}, {kKey, 1, kOther}});
  for (int i = 0; i < 12; ++i) {
    remove({});
    ASSERT_THAT(open(), ElementsAre(Holding{kKey, 1, kHolder}, Holding{kKey, 1, kOther}));
  }
  drops_.fenced(kHolder);
  EXPECT_TRUE(unconfirmed_.empty());
  drops_.fenced(kOther);
  EXPECT_EQ(unconfirmed_, std::vector<std::uint32_t>(13, 0));
  EXPECT_TRUE(drops_.none_open());
}

TEST_F(DropsTest, TheLastOrderEndsTheWait) {
  remove({{kKey, 1, kHolder}}, 1'000 * kMs);
  remove({}, 2'000 * kMs);
  drops_.tick(1'500 * kMs);
  EXPECT_THAT(unconfirmed_, ElementsAre(1));
  drops_.tick(2'500 * kMs);
  EXPECT_THAT(unconfirmed_, ElementsAre(1, 1));
  // The order goes on after the deadlines.
  EXPECT_THAT(open(), ElementsAre(Holding{kKey, 1, kHolder}));
  drops_.fenced(kHolder);
  EXPECT_TRUE(drops_.none_open());
}

TEST_F(DropsTest, LaterVersionsAndOtherKeysAreNotOpen) {
  remove({{kKey, 1, kHolder}, {kKey, 3, kHolder}, {{1, 3}, 1, kHolder}, {{1, 1}, 9, kHolder}});
  EXPECT_THAT(open(2), ElementsAre(Holding{kKey, 1, kHolder}));
  EXPECT_THAT(open(3), ElementsAre(Holding{kKey, 1, kHolder}, Holding{kKey, 3, kHolder}));
}

}  // namespace
}  // namespace mc::metadata
