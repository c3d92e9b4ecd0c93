// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/promises.h"

#include <gtest/gtest.h>

namespace mc::metadata {
namespace {

TEST(Promises, HoldUntilTheFirstOneEndsWithoutTheTimeOfALease) {
  Promises promises(2000, 400);
  EXPECT_EQ(promises.until_ns(), 0U) << "no member";
  promises.joined(1, 5'000);
  promises.joined(2, 5'000);
  EXPECT_EQ(promises.until_ns(), 0U) << "not asked";
  promises.ask(true);
  promises.heard(1, 10'000, 10'100);
  EXPECT_EQ(promises.until_ns(), 0U);
  promises.heard(2, 10'050, 10'100);
  EXPECT_EQ(promises.until_ns(), 10'000U + 1600);
  promises.heard(1, 10'070, 10'200);
  EXPECT_EQ(promises.until_ns(), 10'050U + 1600);
  promises.joined(3, 10'060);  // the answer asks
  promises.heard(2, 10'100, 10'200);
  EXPECT_EQ(promises.until_ns(), 10'060U + 1600);
}

TEST(Promises, OfTheFutureOrOfAnotherNodeAreNone) {
  Promises promises(2000, 400);
  promises.ask(true);
  promises.joined(1, 5'000);
  promises.heard(1, UINT64_MAX, 5'100);
  promises.heard(7, 5'100, 5'100);
  EXPECT_EQ(promises.until_ns(), 5'000U + 1600);
}

TEST(Promises, AreMissingWhileTheStoreNamesANodeThatHasNotJoined) {
  Promises promises(2000, 400);
  promises.ask(true);
  promises.expect(2);
  promises.joined(1, 5'000);
  EXPECT_EQ(promises.until_ns(), 0U);
  promises.forget(2);
  EXPECT_EQ(promises.until_ns(), 5'000U + 1600);
}

}  // namespace
}  // namespace mc::metadata
