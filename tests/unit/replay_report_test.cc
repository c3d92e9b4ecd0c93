// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/summary.h"

#include <gtest/gtest.h>
#include <json/reader.h>
#include <json/value.h>

#include <limits>
#include <memory>
#include <string>

#include "ctl/replay/report/chart.h"

namespace mc::ctl {
namespace {

ReplaySummary sample_summary() {
  ReplaySummary summary;
  summary.command_line = "mcctl replay trace.jsonl --policy lru";
  summary.trace = "trace.jsonl";
  summary.policy = "lru";
  summary.block_bytes = 16384;
  summary.distinct_blocks = 500;
  summary.capacity_blocks = summary.reference_blocks = 100;
  summary.seconds = 1.5;
  summary.evictions = 400;
  summary.result.totals.requests = 50;
  summary.result.totals.block_refs = 1000;
  summary.result.totals.hit_refs = 300;
  summary.trace_refs = 1000;
  summary.lru_hits = 310;
  summary.optimum_hits = 350;
  summary.result.get_block.add(120, 1000);
  summary.result.put_block.add(4000, 700);
  summary.result.by_request.assign(10, HitBin{100, 30});
  summary.result.by_time.assign(30, TimeBin{1'000'000, 2'000'000, 20});
  summary.occupancy = {{0, 0}, {0.5, 100}, {1.5, 100}};
  add_worker_curves(summary, 50);
  return summary;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(ReplayReport, NeedsNothingButItself) {
  const std::string html = report_html(sample_summary());
  for (const char* reference :
       {"http://", "https://", "<script", "<link", "<img", "@import", "url(", " src=", "href="}) {
    EXPECT_EQ(html.find(reference), std::string::npos) << reference;
  }
}

TEST(ReplayReport, EscapesWhatComesFromOutside) {
  ReplaySummary summary = sample_summary();
  summary.trace = "<script>alert(1)</script>";
  summary.command_line = "mcctl replay '\"><img src=x>&'";
  summary.policy = "<b>";
  const std::string html = report_html(summary);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("<b>&lt;"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_NE(html.find("&#39;&quot;&gt;&lt;img src=x&gt;&amp;&#39;"), std::string::npos);
}

TEST(ReplayReport, HasAChartForEachQuestionAndBothColourSchemes) {
  const std::string html = report_html(sample_summary());
  EXPECT_EQ(count_of(html, "<svg class=\"chart\""), 4u);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(html.find("mcctl replay trace.jsonl --policy lru"), std::string::npos);
}

ReplaySummary summary_with_ssd() {
  ReplaySummary summary = sample_summary();
  summary.embedded = true;
  summary.dram_blocks = 40;
  summary.ssd_bytes = 60 * 16384;
  summary.result.totals.fetched_refs = 200;
  for (HitBin& bin : summary.result.by_request) bin.fetched = 20;
  summary.tier = TierState{.demoted_blocks = 400,
                           .demoted_bytes = 400 * 16384,
                           .lost_blocks = 3,
                           .written_bytes = 500 * 16384,
                           .read_blocks = 210,
                           .promoted_blocks = 90};
  summary.hit_ratio.clear();
  add_worker_curves(summary, 50);
  return summary;
}

TEST(ReplayReport, TellsHitsInDramAndOnTheSsdApart) {
  const std::string html = report_html(summary_with_ssd());
  EXPECT_EQ(count_of(html, "<svg class=\"chart\""), 4u);
  EXPECT_NE(html.find("of these in DRAM"), std::string::npos);
  EXPECT_NE(html.find("10.00 % + 20.00 %"), std::string::npos);
  const std::string table = summary_text(summary_with_ssd());
  for (const char* row : {"hits in DRAM", "hits on the SSD", "LRU of both sizes",
                          "share of the optimum", "85.71 %", "written / demoted", "1.25"}) {
    EXPECT_NE(table.find(row), std::string::npos) << row << " in:\n" << table;
  }
  EXPECT_EQ(summary_text(sample_summary()).find("SSD"), std::string::npos);
  EXPECT_EQ(report_html(sample_summary()).find("SSD"), std::string::npos);
}

TEST(ReplayReport, ClosesEveryElementItOpens) {
  const std::string html = report_html(sample_summary());
  for (const std::string tag : {"svg", "figure", "div", "table", "tr", "text", "circle", "main"}) {
    EXPECT_EQ(count_of(html, "<" + tag + " ") + count_of(html, "<" + tag + ">"),
              count_of(html, "</" + tag + ">"))
        << tag;
  }
}

TEST(ReplayReport, ReportOfAnEmptyReplayIsStillAPage) {
  const std::string html = report_html(ReplaySummary{});
  EXPECT_NE(html.find("Nothing was recorded."), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(ReplayReport, AnSsdWithoutADemotionHasNoAmplification) {
  ReplaySummary summary = summary_with_ssd();
  summary.tier = TierState{.written_bytes = 8192};
  EXPECT_EQ(format_amplification(*summary.tier), "-");
  EXPECT_EQ(report_html(summary).find("nan"), std::string::npos);
}

TEST(ReplayChart, LeavesOutInvalidNumbers) {
  Chart chart;
  chart.x.format = chart.y.format = [](double value) { return std::to_string(value); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  chart.series.push_back({"s", 0, false, false, {{0, 1}, {1, nan}, {infinite, 2}, {2, 3}}});
  const std::string svg = chart_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
}

Json::Value json_of(const ReplaySummary& summary) {
  const std::string line = summary_json(summary);
  Json::Value json;
  std::string errors;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  EXPECT_TRUE(reader->parse(line.data(), line.data() + line.size(), &json, &errors)) << errors;
  return json;
}

TEST(ReplaySummaryJson, HasTheCountersOfTheTier) {
  const Json::Value json = json_of(summary_with_ssd());
  EXPECT_EQ(json["dram_hit_refs"].asUInt64(), 100u);
  EXPECT_EQ(json["ssd_hit_refs"].asUInt64(), 200u);
  EXPECT_EQ(json["remote_hit_refs"].asUInt64(), 0u);
  EXPECT_EQ(json["ssd_demoted_bytes"].asUInt64(), 400u * 16384);
  EXPECT_EQ(json["ssd_lost_blocks"].asUInt64(), 3u);
  EXPECT_DOUBLE_EQ(json["ssd_write_amplification"].asDouble(), 1.25);
  EXPECT_NEAR(json["optimum_share"].asDouble(), 300.0 / 350, 1e-6);
  EXPECT_FALSE(json_of(sample_summary()).isMember("ssd_hit_refs"));
}

TEST(ReplaySummaryJson, IsOneLineWithTheFiguresScriptsReadAndTheirValues) {
  const std::string line = summary_json(sample_summary());
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  Json::Value json;
  std::string errors;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  ASSERT_TRUE(reader->parse(line.data(), line.data() + line.size(), &json, &errors)) << errors;
  EXPECT_EQ(json["policy"].asString(), "lru");
  EXPECT_EQ(json["capacity_blocks"].asUInt64(), 100u);
  EXPECT_EQ(json["requests"].asUInt64(), 50u);
  EXPECT_EQ(json["block_refs"].asUInt64(), 1000u);
  EXPECT_EQ(json["hit_refs"].asUInt64(), 300u);
  EXPECT_DOUBLE_EQ(json["hit_ratio"].asDouble(), 0.3);
  EXPECT_EQ(json["wrong_bytes"].asUInt64(), 0u);
  EXPECT_EQ(json["evictions"].asUInt64(), 400u);
  EXPECT_NEAR(json["get_p50_ns"].asDouble(), 120, 4);
  EXPECT_TRUE(json.isMember("get_p99_ns"));
  EXPECT_TRUE(json.isMember("put_p50_ns"));
  EXPECT_DOUBLE_EQ(json["seconds"].asDouble(), 1.5);
}

}  // namespace
}  // namespace mc::ctl
