// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/way.h"

#include <gtest/gtest.h>

namespace mc {
namespace {

TEST(WayTo, EachLoopbackAddressEndsHere) {
  for (const char* host : {"127.0.0.1", "127.0.0.2", "localhost"}) {
    const auto way = way_to(host, "7400");
    ASSERT_TRUE(way) << way.error().to_string();
    EXPECT_TRUE(way->ends_here()) << way->own << " to " << way->other;
  }
}

TEST(WayTo, ANameThatNobodyHasIsAnError) {
  const auto way = way_to("no-such-host.invalid", "7400");
  ASSERT_FALSE(way);
  EXPECT_EQ(way.error().code(), MC_AGENT_UNAVAILABLE);
  EXPECT_NE(way.error().text().find("no-such-host.invalid"), std::string_view::npos);
}

}  // namespace
}  // namespace mc
