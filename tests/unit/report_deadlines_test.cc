// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/report_deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libmc/base/clock.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kMaxNodes = 4;

TEST(ReportDeadlines, AReportWithoutProgressIsWaitedForTwoSeconds) {
  ReportDeadlines reports(kMaxNodes);
  EXPECT_TRUE(reports.joined(1, 0));
  reports.heard(1, 1'500 * kMs);
  EXPECT_THAT(reports.expire(3'400 * kMs), IsEmpty());
  EXPECT_THAT(reports.expire(3'500 * kMs), ElementsAre(1));
  EXPECT_THAT(reports.expire(9'000 * kMs), IsEmpty()) << "each member once";
}

TEST(ReportDeadlines, AReportThatGoesOnIsWaitedForTenSeconds) {
  ReportDeadlines reports(kMaxNodes);
  EXPECT_TRUE(reports.joined(1, 0));
  for (std::uint64_t ms = 1'000; ms < 10'000; ms += 1'000) {
    reports.heard(1, ms * kMs);
    EXPECT_THAT(reports.expire(ms * kMs), IsEmpty());
  }
  EXPECT_THAT(reports.expire(10'000 * kMs), ElementsAre(1));
}

TEST(ReportDeadlines, ALateMemberIsWaitedForAgainAfterACompleteReport) {
  ReportDeadlines reports(kMaxNodes);
  reports.joined(1, 0);
  reports.expire(2'000 * kMs);
  reports.gone(1);
  EXPECT_FALSE(reports.joined(1, 3'000 * kMs));
  reports.heard(1, 3'100 * kMs);
  reports.reported(1);
  EXPECT_TRUE(reports.joined(1, 4'000 * kMs));
}

// After a pause of the master, a message may be read before the pause is known and taken off the time.
TEST(ReportDeadlines, AMessageFromLaterThanNowIsNotOldYet) {
  ReportDeadlines reports(kMaxNodes);
  reports.joined(1, 6'000 * kMs);
  reports.heard(1, 6'000 * kMs);
  EXPECT_THAT(reports.expire(1'000 * kMs), IsEmpty());
  EXPECT_THAT(reports.expire(8'000 * kMs), ElementsAre(1));
}

TEST(ReportDeadlines, AMemberThatReportsOrLeavesIsNotLate) {
  ReportDeadlines reports(kMaxNodes);
  for (NodeId node = 1; node <= 2; ++node) reports.joined(node, 0);
  reports.reported(1);
  reports.gone(2);
  EXPECT_THAT(reports.expire(60'000 * kMs), IsEmpty());
}

}  // namespace
}  // namespace mc::metadata
