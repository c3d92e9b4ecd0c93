// SPDX-License-Identifier: Apache-2.0
//
// The fields of a log line in the journal. tests/booted has the journal itself.
#include "libmc/log/program_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mc::log {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(JournalFields, AreThePairsOfALine) {
  EXPECT_THAT(journal_fields("event=ready pid=7 socket=/run/mc/agent.sock"),
              ElementsAre(Pair("MC_EVENT", "ready"), Pair("MC_PID", "7"),
                          Pair("MC_SOCKET", "/run/mc/agent.sock")));
}

TEST(JournalFields, HaveTextsWithoutTheirQuotes) {
  EXPECT_THAT(
      journal_fields(R"(event=no_metrics cause="bind 127.0.0.1:9464: in use" try="another port")"),
      ElementsAre(Pair("MC_EVENT", "no_metrics"), Pair("MC_CAUSE", "bind 127.0.0.1:9464: in use"),
                  Pair("MC_TRY", "another port")));
  EXPECT_THAT(journal_fields(R"(cause="no option 'x="y"')"),
              ElementsAre(Pair("MC_CAUSE", R"(no option 'x="y"')")));
}

TEST(JournalFields, LeaveOutWordsThatAreNoPairs) {
  EXPECT_THAT(journal_fields("a plain sentence"), IsEmpty());
  EXPECT_THAT(journal_fields("Upper=1 =2 good_1=3 trailing"), ElementsAre(Pair("MC_GOOD_1", "3")));
  EXPECT_THAT(journal_fields(""), IsEmpty());
  EXPECT_THAT(journal_fields("cause="), ElementsAre(Pair("MC_CAUSE", "")));
  EXPECT_THAT(journal_fields("cause=\""), ElementsAre(Pair("MC_CAUSE", "")));
  EXPECT_THAT(journal_fields("cause=\"open"), ElementsAre(Pair("MC_CAUSE", "open")));
}

}  // namespace
}  // namespace mc::log
