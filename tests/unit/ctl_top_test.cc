// SPDX-License-Identifier: Apache-2.0
//
// mcctl top without a terminal: rates, tables, keys and the lines of the screen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ctl/text/json.h"
#include "ctl/text/table.h"
#include "ctl/top/rows.h"
#include "ctl/top/sample.h"
#include "ctl/top/summary.h"
#include "ctl/top/view.h"

namespace mc::ctl::top {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kNamespaces = 0;
constexpr std::size_t kSessions = 1;
constexpr std::size_t kRails = 2;

// The counters of an agent after `work` units of work, in a cluster.
AgentLook look_after(std::uint64_t work) {
  AgentLook look;
  Json::Value& status = look.status;
  status["version"] = "0.1.0";
  status["pid"] = 1;
  status["incarnation"] = 5;
  status["uptime_s"] = u64(100 + work);
  status["sessions_open"] = 2;
  Json::Value space;
  space["name"] = "default";
  space["pool_bytes"] = u64(1u << 20);
  space["used_bytes"] = u64(1u << 19);
  space["objects"] = 12;
  space["hits"] = u64(90 * work);
  space["misses"] = u64(10 * work);
  space["hit_bytes"] = u64((1u << 20) * work);
  space["puts"] = u64(100 * work);
  space["put_bytes"] = u64(2048 * work);
  status["namespaces"].append(space);
  for (int i = 0; i < 2; ++i) {
    Json::Value session;
    session["id"] = 4 + i;
    session["pid"] = 77 + i;
    session["label"] = i == 0 ? "vllm" : "sglang";
    session["namespace"] = "default";
    session["requests"] = u64(static_cast<std::uint64_t>(i + 1) * 10 * work);
    status["sessions"].append(session);
  }
  Json::Value& put = status["requests"]["put"];
  put["ended"]["MC_OK"] = u64(100 * work);
  Json::Value& busy = status["loop"]["tick"];
  busy["longest_ns"] = 3000000;
  for (std::uint64_t i = 0; i < 26; ++i) {
    put["waited"]["counts"].append(u64(i == 3 ? 90 * work : i == 10 ? 10 * work : 0));
    busy["busy"]["counts"].append(u64(i == 6 ? work : 0));
  }
  Json::Value& cluster = status["cluster"];
  cluster["id"] = "team-a";
  cluster["master_ready"] = true;
  cluster["members"] = 3;
  cluster["counters"]["delivered"] = u64(7 * work);
  cluster["counters"]["read_bytes"] = u64((1u << 20) * work);
  cluster["counters"]["served_bytes"] = u64((2u << 20) * work);
  Json::Value peer;
  peer["node"] = 9;
  peer["address"] = "10.0.0.2:7401";
  Json::Value rail;
  rail["transport"] = "tcp";
  rail["name"] = "bulk 1";
  rail["health"] = "up";
  rail["outstanding_bytes"] = 1024;
  rail["window_bytes"] = 4096;
  rail["done_bytes"] = u64((1u << 20) * work);
  peer["rails"].append(rail);
  look.rails["peers"].append(peer);
  return look;
}

Json::Value usual_sample() { return sample_of(look_after(2), look_after(4), 2); }

// ---- Rates --------------------------------------------------------------------------------------

TEST(CtlTopSample, RatesAreChangesPerSecond) {
  const Json::Value sample = usual_sample();
  const Json::Value& rates = sample["rates"];
  EXPECT_EQ(rates["puts_per_s"].asUInt(), 100u);
  EXPECT_EQ(rates["put_bytes_per_s"].asUInt(), 2048u);
  EXPECT_EQ(rates["gets_per_s"].asUInt(), 100u);
  EXPECT_EQ(rates["get_bytes_per_s"].asUInt(), 1u << 20);
  EXPECT_EQ(rates["requests_per_s"].asUInt(), 100u);
  EXPECT_EQ(rates["fetched_bytes_per_s"].asUInt(), 1u << 20);
  EXPECT_EQ(rates["served_bytes_per_s"].asUInt(), 2u << 20);
  EXPECT_EQ(rates["remote_gets_per_s"].asUInt(), 7u);
  EXPECT_DOUBLE_EQ(sample["hit_ratio"].asDouble(), 0.9);
  EXPECT_EQ(sample["sessions"][1]["requests_per_s"].asUInt(), 20u);
  EXPECT_EQ(sample["rails"][0]["bytes_per_s"].asUInt(), 1u << 20);
  EXPECT_EQ(sample["rails"][0]["peer"], "10.0.0.2:7401");
}

TEST(CtlTopSample, LatenciesAndTurnsAreBoundsOfTheInterval) {
  const Json::Value sample = usual_sample();
  const Json::Value& put = sample["latencies"]["put"];
  EXPECT_EQ(put["p50_below_ns"].asUInt64(), 8000u);
  EXPECT_EQ(put["p99_below_ns"].asUInt64(), 1024000u);
  EXPECT_EQ(put["per_s"].asUInt64(), 100u);
  EXPECT_EQ(sample["loop"]["longest_below_ns"].asUInt64(), 64000u);
  EXPECT_EQ(sample["loop"]["cause"], "tick");
  EXPECT_EQ(sample["loop"]["longest_ever_ns"].asUInt64(), 3000000u);
}

TEST(CtlTopSample, AQuantileIsTheBoundOfItsBucket) {
  EXPECT_TRUE(quantile_bound_ns({}, 0.5).isNull());
  EXPECT_TRUE(quantile_bound_ns({0, 0, 0}, 0.5).isNull());
  EXPECT_EQ(quantile_bound_ns({99, 1, 0}, 0.99).asUInt64(), 1000u);
  EXPECT_EQ(quantile_bound_ns({98, 2, 0}, 0.99).asUInt64(), 2000u);
  EXPECT_TRUE(quantile_bound_ns({0, 0, 5}, 0.5).isNull()) << "the last bucket has no bound";
}

TEST(CtlTopSample, AHistogramOfManyBucketsIsCut) {
  AgentLook now = look_after(2);
  Json::Value& counts = now.status["requests"]["put"]["waited"]["counts"];
  for (int i = 0; i < 1000; ++i) counts.append(u64(1u << 20));
  const Json::Value sample = sample_of(look_after(1), now, 1);
  // The buckets 26 to 39 have the most counts.
  EXPECT_EQ(sample["latencies"]["put"]["p50_below_ns"].asUInt64(), std::uint64_t{1000} << 32);
  EXPECT_TRUE(sample["latencies"]["put"]["p99_below_ns"].isNull());
}

TEST(CtlTopSample, AFirstLookHasFiguresButNoRates) {
  const Json::Value sample = sample_of({}, look_after(2), 0);
  EXPECT_EQ(sample["namespaces"][0]["objects"].asUInt(), 12u);
  EXPECT_TRUE(sample["namespaces"][0]["puts_per_s"].isNull());
  EXPECT_TRUE(sample["rates"]["puts_per_s"].isNull());
  EXPECT_TRUE(sample["hit_ratio"].isNull());
  EXPECT_TRUE(sample["latencies"].empty());
  EXPECT_THAT(plain_text(sample, {}), HasSubstr("puts -, -"));
}

TEST(CtlTopSample, CountersThatBeganAnewHaveNoRates) {
  const Json::Value sample = sample_of(look_after(9), look_after(1), 1);
  EXPECT_TRUE(sample["rates"]["puts_per_s"].isNull());
  EXPECT_TRUE(sample["rates"]["requests_per_s"].isNull());
  EXPECT_TRUE(sample["latencies"].empty());
}

TEST(CtlTopSample, AnAgentThatStartedAnewIsAnotherOne) {
  EXPECT_TRUE(is_same_agent(look_after(1), look_after(2)));
  EXPECT_FALSE(is_same_agent(look_after(2), look_after(1))) << "the uptime went back";
  AgentLook other = look_after(2);
  other.status["incarnation"] = 6;
  EXPECT_FALSE(is_same_agent(look_after(1), other));
}

TEST(CtlTopSample, AnAgentWithoutAClusterHasNoRails) {
  AgentLook before = look_after(1);
  AgentLook now = look_after(2);
  before.rails = now.rails = Json::Value();
  before.status.removeMember("cluster");
  now.status.removeMember("cluster");
  const Json::Value sample = sample_of(before, now, 1);
  EXPECT_FALSE(sample.isMember("rails"));
  EXPECT_FALSE(sample.isMember("cluster"));
  EXPECT_THAT(plain_text(sample, {}), Not(HasSubstr("fetched")));
}

TEST(CtlTopSample, JunkOfAnAgentIsShownAsZeros) {
  const Json::Value junk = sample_of({Json::Value("x"), Json::Value(7)}, {Json::Value(3), {}}, 1);
  EXPECT_THAT(plain_text(junk, {}), HasSubstr("pid 0"));
  EXPECT_THAT(plain_text(Json::Value(), {}), HasSubstr("pid 0"));
}

AgentLook look_with_disks(std::uint64_t work) {
  AgentLook look = look_after(work);
  Json::Value& tier = look.status["tier"];
  tier["objects"] = 3000;
  tier["demoted_bytes"] = u64((3u << 20) * work);
  tier["read"] = u64(5 * work);
  tier["read_bytes"] = u64((1u << 20) * work);
  tier["lost_busy"] = u64(2 * work);
  tier["lost_failed"] = u64(work);
  for (int i = 0; i < 2; ++i) {
    Json::Value disk;
    disk["path"] = i == 0 ? "/mnt/a" : "/mnt/b";
    disk["state"] = "serving";
    disk["serving"] = true;
    disk["bytes"] = u64(1u << 30);
    disk["live_bytes"] = u64(1u << 28);
    tier["disks"].append(disk);
  }
  return look;
}

TEST(CtlTopSample, DisksHaveTheirSumsAndRates) {
  const Json::Value sample = sample_of(look_with_disks(2), look_with_disks(4), 2);
  EXPECT_EQ(sample["tier"]["live_bytes"].asUInt(), 1u << 29);
  EXPECT_EQ(sample["tier"]["lost_per_s"].asUInt(), 3u);
  const std::string text = plain_text(sample, {});
  for (const char* fact : {"disks 512 MiB of 2.00 GiB, 3,000 objects", "demoted 3.00 MiB/s",
                           "read 5/s, 1.00 MiB/s", "evicted without a disk 3/s"}) {
    EXPECT_THAT(text, HasSubstr(fact));
  }
  EXPECT_FALSE(usual_sample().isMember("tier"));
}

TEST(CtlTopSummary, ADiskThatDoesNotServeIsATrouble) {
  AgentLook now = look_with_disks(2);
  Json::Value& disk = now.status["tier"]["disks"][1];
  disk["state"] = "failed";
  disk["serving"] = false;
  disk["problem"] = "Input/output error";
  const std::vector<Paragraph> all = summary_of(sample_of(look_with_disks(1), now, 1));
  EXPECT_TRUE(all.at(1).front().is_trouble);
  EXPECT_EQ(all.at(1).front().text, "disk /mnt/b is failed: Input/output error");
}

// ---- Facts --------------------------------------------------------------------------------------

TEST(CtlTopSummary, FactsNameRatesHitsLatenciesAndTurns) {
  const std::string text = plain_text(usual_sample(), {});
  for (const char* fact :
       {"gets 100/s, 1.00 MiB/s", "hit ratio 90.0%", "puts 100/s, 2.00 KiB/s", "fetched 1.00 MiB/s",
        "cluster team-a: the master knows this agent", "members 3, lost 0",
        "put: p50 below 8.00 us, p99 below 1.02 ms (100/s waited)",
        "longest turn below 64.0 us (tick); ever 3.00 ms (tick)", "bulk 1"}) {
    EXPECT_THAT(text, HasSubstr(fact));
  }
}

TEST(CtlTopSummary, AnAgentThatNoMasterKnowsIsATrouble) {
  AgentLook now = look_after(2);
  now.status["cluster"]["master_ready"] = false;
  now.status["cluster"]["master_trouble"] = "connection refused";
  const std::vector<Paragraph> all = summary_of(sample_of(look_after(1), now, 1));
  const auto trouble =
      std::ranges::find_if(all, [](const Paragraph& facts) { return facts.front().is_trouble; });
  ASSERT_NE(trouble, all.end());
  EXPECT_EQ(trouble->front().text,
            "cluster team-a: no master knows this agent: connection refused");
  EXPECT_EQ(trouble - all.begin(), 1) << "below the facts of the agent alone";
}

TEST(CtlTopSummary, ABarShowsTheUsedShareAndFitsTheWidth) {
  const Json::Value row = usual_sample()["namespaces"][0];
  EXPECT_EQ(occupancy_bar(row, 7, 60),
            "default  [###########...........]   50%  512 KiB of 1.00 MiB");
  for (std::size_t width = 0; width < 120; ++width) {
    EXPECT_LE(display_width(occupancy_bar(row, 7, width)), width);
  }
  EXPECT_THAT(occupancy_bar(row, 7, 36), Not(HasSubstr("["))) << "no room for a bar";
}

TEST(CtlTopSummary, PlainTextWithoutAFilterHasTenBusySessions) {
  Json::Value sample;
  for (int i = 0; i < 30; ++i) {
    Json::Value session;
    session["pid"] = 1000 + i;
    session["label"] = "engine";
    session["requests_per_s"] = i % 2;
    sample["sessions"].append(session);
  }
  const auto lines = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("engine", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(lines(plain_text(sample, {})), 10u);
  EXPECT_EQ(lines(plain_text(sample, {"", "ENGINE"})), 30u);
  EXPECT_EQ(lines(plain_text(sample, {"", "1003"})), 1u);
}

// ---- Rows ---------------------------------------------------------------------------------------

std::vector<std::string> names(const std::vector<const Json::Value*>& rows, const char* field) {
  std::vector<std::string> out;
  for (const Json::Value* row : rows) out.push_back(text_field(*row, field));
  return out;
}

Json::Value three_sessions() {
  Json::Value sample;
  const auto add = [&](int pid, const char* label, const Json::Value& requests) {
    Json::Value session;
    session["pid"] = pid;
    session["label"] = label;
    session["requests_per_s"] = requests;
    sample["sessions"].append(session);
  };
  add(30, "b", Json::Value());
  add(9, "a", 5);
  add(100, "C", 50);
  add(20, "d", 5);
  return sample;
}

TEST(CtlTopRows, FiguresBeginWithTheLargestAndUnknownOnesComeLast) {
  const Json::Value sample = three_sessions();
  const TopTable& table = kTopTables[kSessions];
  EXPECT_THAT(names(rows_of(sample, table, table.order, ""), "pid"),
              ElementsAre("100", "9", "20", "30"));
  EXPECT_THAT(names(rows_of(sample, table, {table.order.column, true}, ""), "pid"),
              ElementsAre("9", "20", "100", "30"));
}

TEST(CtlTopRows, IdsAreSortedAsNumbersAndTextsByLetters) {
  const Json::Value sample = three_sessions();
  const TopTable& table = kTopTables[kSessions];
  EXPECT_THAT(names(rows_of(sample, table, order_of(table, "pid"), ""), "pid"),
              ElementsAre("9", "20", "30", "100"));
  EXPECT_THAT(names(rows_of(sample, table, order_of(table, "label"), ""), "label"),
              ElementsAre("C", "a", "b", "d"));
}

TEST(CtlTopRows, AFilterLooksIntoNamesAndIdsButNotIntoFigures) {
  const Json::Value sample = three_sessions();
  const TopTable& table = kTopTables[kSessions];
  EXPECT_THAT(names(rows_of(sample, table, table.order, "c"), "pid"), ElementsAre("100"));
  EXPECT_THAT(names(rows_of(sample, table, table.order, "0"), "pid"),
              ElementsAre("100", "20", "30"));
  EXPECT_TRUE(rows_of(sample, table, table.order, "50").empty());
}

TEST(CtlTopRows, EachColumnCanBeNamedAndAnotherNameIsRefused) {
  for (const TopTable& table : kTopTables) {
    for (const Column& column : table.columns) EXPECT_EQ(sort_refusal(column.key()), "");
  }
  EXPECT_EQ(sort_refusal("usd"), "no table has a column 'usd', but one has 'used'");
  EXPECT_EQ(sort_refusal(""), "no table has a column ''");
}

TEST(CtlTopRows, TheDocumentIsSortedAndFilteredToo) {
  const Json::Value out = arranged(three_sessions(), {"pid", "0"});
  ASSERT_EQ(out["sessions"].size(), 3u);
  EXPECT_EQ(out["sessions"][0]["pid"].asInt(), 20);
  EXPECT_FALSE(out.isMember("rails"));
}

TEST(CtlTopRows, CellsHaveUnitsAndNoControlCharacters) {
  Json::Value row;
  row["label"] = "a\x1b[2J\xc2\x9b\xff";
  row["latency_ns"] = 5000;
  row["load"] = 0.25;
  EXPECT_EQ(cell_text(row, kTopTables[kSessions].columns[1]), "a?[2J??");
  const auto rail_cell = [&](const char* key) {
    const TopTable& table = kTopTables[kRails];
    return cell_text(row, table.columns[*table.column_of(key)]);
  };
  EXPECT_EQ(rail_cell("latency"), "5.00 us");
  EXPECT_EQ(rail_cell("load"), "25%");
  EXPECT_EQ(rail_cell("now"), "-");
}

// ---- Keys ---------------------------------------------------------------------------------------

bool type(View& view, std::string_view keys) {
  return std::ranges::all_of(keys, [&](char key) {
    return press(view, KeyPress{Key::kText, key});
  });
}

TEST(CtlTopKeys, LettersChooseTheOrderOfTheTable) {
  View view({}, 1);
  EXPECT_TRUE(type(view, "s"));
  EXPECT_EQ(view.orders[kNamespaces].column, 1u);
  type(view, "<<");
  EXPECT_EQ(view.orders[kNamespaces].column, kTopTables[kNamespaces].columns.size() - 1);
  type(view, "r>");
  EXPECT_EQ(view.orders[kNamespaces].column, 0u);
  EXPECT_FALSE(view.orders[kNamespaces].reversed) << "a new column has its usual direction";
  EXPECT_EQ(view.orders[kSessions].column, kTopTables[kSessions].order.column);
  EXPECT_FALSE(type(view, "q"));
}

TEST(CtlTopKeys, TheKeysOfAFilterAreLetters) {
  View view({}, 1);
  type(view, "/q\xc3\xb6");
  EXPECT_EQ(view.filter, "q\xc3\xb6");
  press(view, {Key::kBackspace});
  EXPECT_EQ(view.filter, "q");
  press(view, {Key::kEnter});
  EXPECT_FALSE(view.typing);
  EXPECT_EQ(view.filter, "q");
  press(view, {Key::kEscape});
  EXPECT_EQ(view.filter, "");
  type(view, "/" + std::string(1000, 'x'));
  EXPECT_EQ(view.filter.size(), 64u);
}

TEST(CtlTopKeys, TheIntervalHasStepsWithinItsRange) {
  View view({}, 1);
  type(view, "+");
  EXPECT_EQ(view.interval_s, 2);
  type(view, "--");
  EXPECT_EQ(view.interval_s, 0.5);
  type(view, std::string(100, '-'));
  EXPECT_EQ(view.interval_s, 0.1);
  type(view, std::string(100, '+'));
  EXPECT_EQ(view.interval_s, 3600);
  View odd({}, 1.5);
  type(odd, "-");
  EXPECT_EQ(odd.interval_s, 1);
}

TEST(CtlTopKeys, AnyKeyEndsTheHelp) {
  View view({}, 1);
  type(view, "h");
  EXPECT_TRUE(view.help);
  EXPECT_TRUE(press(view, {Key::kDown}));
  EXPECT_TRUE(view.help) << "the help scrolls";
  EXPECT_TRUE(type(view, "q"));
  EXPECT_FALSE(view.help);
}

TEST(CtlTopKeys, TheOptionSortOpensTheTableOfTheColumn) {
  EXPECT_EQ(View({"requests/s", ""}, 1).table, kSessions);
  EXPECT_EQ(View({"load", ""}, 1).table, kRails);
  EXPECT_EQ(View({"", "x"}, 1).table, kNamespaces);
}

// ---- The screen ---------------------------------------------------------------------------------

std::string text_of(const ScreenLine& line) {
  std::string out;
  for (const Span& span : line) out += span.text;
  return out;
}

std::string screen_text(View& view, const Feed& feed, std::size_t width, std::size_t height) {
  std::string out;
  for (const ScreenLine& line : lay_out(view, feed, width, height)) out += text_of(line) + '\n';
  return out;
}

Feed many_sessions(int count) {
  Feed feed{usual_sample()};
  feed.sample["sessions"] = Json::Value(Json::arrayValue);
  for (int i = 0; i < count; ++i) {
    Json::Value session;
    session["pid"] = 1000 + i;
    session["label"] = "größe " + std::string(60, 'x');
    session["requests_per_s"] = 1000 - i;
    feed.sample["sessions"].append(session);
  }
  return feed;
}

TEST(CtlTopScreen, NoLineIsWiderAndNoScreenHigherThanTheTerminal) {
  for (const bool away : {false, true}) {
    Feed feed = many_sessions(50);
    if (away) feed.trouble = "connect to /run/mc/agent.sock: " + std::string(200, 'y');
    for (const std::size_t width : {0u, 1u, 2u, 12u, 40u, 80u, 100u, 250u}) {
      for (const std::size_t height : {0u, 1u, 2u, 3u, 5u, 10u, 24u, 100u}) {
        for (const char* keys : {"", "h", "/filter"}) {
          for (std::size_t table = 0; table < kTables; ++table) {
            View view({}, 1);
            view.table = table;
            type(view, keys);
            press(view, {Key::kEnd});
            press(view, {Key::kRight});
            const std::vector<ScreenLine> lines = lay_out(view, feed, width, height);
            EXPECT_EQ(lines.size(), width == 0 ? 0 : height);
            for (const ScreenLine& line : lines) {
              EXPECT_LE(display_width(text_of(line)), width) << text_of(line);
            }
          }
        }
      }
    }
  }
}

TEST(CtlTopScreen, AUsualScreenShowsFactsBarsTablesAndKeys) {
  View view({}, 1);
  const std::string text = screen_text(view, {usual_sample()}, 80, 24);
  for (const char* part : {"agent 0.1.0  pid 1", "every 1 s", "gets 100/s", "default  [####",
                           " namespaces 1  sessions 2  rails 1   by namespace, ascending",
                           "NAMESPACE  USED%", "q quit  h help  Tab table  s sort"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  press(view, {Key::kTab});
  EXPECT_THAT(screen_text(view, {usual_sample()}, 80, 24),
              AllOf(HasSubstr("sglang"), HasSubstr("by requests/s, descending")));
  press(view, {Key::kTab});
  EXPECT_THAT(screen_text(view, {usual_sample()}, 80, 24), HasSubstr("10.0.0.2:7401"));
  press(view, {Key::kTab});
  EXPECT_EQ(view.table, kNamespaces);
}

TEST(CtlTopScreen, ANarrowScreenStillHasFactsRowsAndKeys) {
  View view({}, 1);
  const std::string text = screen_text(view, {usual_sample()}, 40, 10);
  for (const char* part : {"agent 0.1.0", "NAMESPACE", "default", "q quit"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(CtlTopScreen, RowsScrollToTheLastOneAndBack) {
  View view({"requests/s", ""}, 1);
  const Feed feed = many_sessions(50);
  EXPECT_THAT(screen_text(view, feed, 80, 24), AllOf(HasSubstr("\n1000 "), HasSubstr("of 50")));
  press(view, {Key::kDown});
  EXPECT_THAT(screen_text(view, feed, 80, 24), Not(HasSubstr("\n1000 ")));
  press(view, {Key::kEnd});
  EXPECT_THAT(screen_text(view, feed, 80, 24), HasSubstr("\n1049 "));
  const std::size_t last = view.first_row;
  EXPECT_EQ(last, 50 - view.page_rows);
  press(view, {Key::kPageDown});
  screen_text(view, feed, 80, 24);
  EXPECT_EQ(view.first_row, last) << "the last page is the end";
  press(view, {Key::kPageUp});
  screen_text(view, feed, 80, 24);
  EXPECT_EQ(view.first_row, last - view.page_rows);
  press(view, {Key::kHome});
  EXPECT_THAT(screen_text(view, feed, 80, 24), HasSubstr("\n1000 "));
}

TEST(CtlTopScreen, FewerRowsBringTheViewBack) {
  View view({"requests/s", ""}, 1);
  press(view, {Key::kEnd});
  screen_text(view, many_sessions(50), 80, 24);
  EXPECT_THAT(screen_text(view, many_sessions(2), 80, 24), HasSubstr("\n1000 "));
  EXPECT_EQ(view.first_row, 0u);
}

TEST(CtlTopScreen, ColumnsScrollToTheLastOneBesideTheFirst) {
  View view({"requests/s", ""}, 1);
  const Feed feed = many_sessions(2);
  EXPECT_THAT(screen_text(view, feed, 60, 24), Not(HasSubstr("SESSION")));
  for (int i = 0; i < 100; ++i) press(view, {Key::kRight});
  EXPECT_THAT(screen_text(view, feed, 60, 24),
              AllOf(HasSubstr("PID"), HasSubstr("SESSION"), Not(HasSubstr("LABEL"))));
  for (int i = 0; i < 100; ++i) press(view, {Key::kLeft});
  EXPECT_THAT(screen_text(view, feed, 60, 24), HasSubstr("LABEL"));
}

TEST(CtlTopScreen, AFilterIsShownWithTheRowsThatItLeaves) {
  View view({"requests/s", ""}, 1);
  type(view, "/VLLM");
  const Feed feed{usual_sample()};
  EXPECT_THAT(screen_text(view, feed, 80, 24),
              AllOf(HasSubstr("filter: VLLM_"), HasSubstr(" 77 "), Not(HasSubstr("sglang"))));
  type(view, "?");
  EXPECT_THAT(screen_text(view, feed, 80, 24), HasSubstr("no row has the text of the filter"));
}

TEST(CtlTopScreen, AnAgentThatIsAwayHasItsCauseAndFaintOldFigures) {
  View view({}, 1);
  const Feed feed{usual_sample(), "connection refused\x1b"};
  const std::vector<ScreenLine> lines = lay_out(view, feed, 80, 24);
  EXPECT_EQ(text_of(lines[0]), "NO ANSWER: connection refused? (the figures below are old)");
  EXPECT_EQ(lines[0][0].style, Style::kBad);
  EXPECT_EQ(lines[1][0].style, Style::kFaint);
  EXPECT_THAT(text_of(lines[1]), HasSubstr("pid 1"));
  EXPECT_THAT(screen_text(view, feed, 40, 4), HasSubstr("NO ANSWER")) << "also on a small screen";
}

TEST(CtlTopScreen, BeforeTheFirstAnswerThereAreNoFigures) {
  View view({}, 1);
  EXPECT_THAT(screen_text(view, {}, 80, 24),
              AllOf(HasSubstr("asking the agent"), HasSubstr("q quit"), Not(HasSubstr("pid"))));
  EXPECT_THAT(screen_text(view, {Json::Value(), "connection refused"}, 80, 24),
              AllOf(HasSubstr("NO ANSWER: connection refused\n"), HasSubstr("asks again"),
                    Not(HasSubstr("old"))));
}

TEST(CtlTopScreen, APausedViewSaysSo) {
  View view({}, 1);
  type(view, "p");
  EXPECT_THAT(screen_text(view, {usual_sample()}, 80, 24), HasSubstr("PAUSED"));
}

}  // namespace
}  // namespace mc::ctl::top
