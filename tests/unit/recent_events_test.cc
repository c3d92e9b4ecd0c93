// SPDX-License-Identifier: Apache-2.0
//
#include "libmc/log/recent_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mc::log {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PairsOfALogLine, HaveNamesAndTexts) {
  EXPECT_THAT(
      pairs_of("event=ready pid=7 socket=/run/mc/agent.sock"),
      ElementsAre(Pair("event", "ready"), Pair("pid", "7"), Pair("socket", "/run/mc/agent.sock")));
}

TEST(PairsOfALogLine, HaveTextsWithoutTheirQuotes) {
  EXPECT_THAT(
      pairs_of(R"(event=no_metrics cause="bind 127.0.0.1:9464: in use" try="another port")"),
      ElementsAre(Pair("event", "no_metrics"), Pair("cause", "bind 127.0.0.1:9464: in use"),
                  Pair("try", "another port")));
  EXPECT_THAT(pairs_of(R"(cause="no option 'x="y"')"),
              ElementsAre(Pair("cause", R"(no option 'x="y"')")));
}

TEST(PairsOfALogLine, LeaveOutWordsThatAreNoPairs) {
  EXPECT_THAT(pairs_of("a plain sentence"), IsEmpty());
  EXPECT_THAT(pairs_of("Upper=1 =2 good_1=3 trailing"), ElementsAre(Pair("good_1", "3")));
  EXPECT_THAT(pairs_of(""), IsEmpty());
  EXPECT_THAT(pairs_of("cause="), ElementsAre(Pair("cause", "")));
  EXPECT_THAT(pairs_of("cause=\""), ElementsAre(Pair("cause", "")));
  EXPECT_THAT(pairs_of("cause=\"open"), ElementsAre(Pair("cause", "open")));
}

std::vector<std::string> lines_of(const std::vector<RecentEvents::Event>& events) {
  std::vector<std::string> lines;
  for (const RecentEvents::Event& event : events) lines.push_back(event.line);
  return lines;
}

TEST(RecentEvents, AreReadInOrderFromANumberOn) {
  RecentEvents events;
  EXPECT_EQ(events.latest(), 0u);
  EXPECT_THAT(events.after(0, 8), IsEmpty());
  for (const char* const line : {"one", "two", "three"}) events.add(7, "info", line);
  EXPECT_EQ(events.latest(), 3u);
  EXPECT_THAT(lines_of(events.after(0, 8)), ElementsAre("one", "two", "three"));
  EXPECT_THAT(lines_of(events.after(1, 1)), ElementsAre("two"));
  EXPECT_THAT(events.after(3, 8), IsEmpty());
  EXPECT_THAT(events.after(99, 8), IsEmpty());
}

TEST(RecentEvents, KeepTheLatestLinesAndCutLongOnes) {
  RecentEvents events;
  for (std::size_t i = 0; i < RecentEvents::kMost + 2; ++i) {
    events.add(i, "info", std::string(2000, 'x'));
  }
  const auto kept = events.after(0, 2 * RecentEvents::kMost);
  ASSERT_EQ(kept.size(), RecentEvents::kMost);
  EXPECT_EQ(kept.front().number, 3u);
  EXPECT_EQ(kept.back().number, RecentEvents::kMost + 2);
  EXPECT_EQ(kept.back().line.size(), RecentEvents::kMostLineBytes);
}

}  // namespace
}  // namespace mc::log
