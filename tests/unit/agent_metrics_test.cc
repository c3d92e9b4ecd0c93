// SPDX-License-Identifier: Apache-2.0
//
// The metrics of an agent's status, and their page.
#include "agent/metrics/agent_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <json/reader.h>

#include <fstream>
#include <memory>
#include <sstream>

namespace mc::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json::Value status_of(const std::string& text) {
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  Json::Value value;
  std::string errors;
  EXPECT_TRUE(reader->parse(text.data(), text.data() + text.size(), &value, &errors)) << errors;
  return value;
}

TEST(AgentMetrics, ShowTheStatusWithLabels) {
  const std::string text = metrics_text(status_of(R"({
    "version": "1.2", "node_id": "18446744073709551615", "uptime_s": 7,
    "namespaces": [{"name": "a", "objects": 3}, {"name": "b\"\n", "objects": 4, "corrupt": 1}],
    "cluster": {"master_ready": true, "misses": {"late": 5, "nobody": 6}}})"));
  EXPECT_THAT(text, HasSubstr("mc_agent_info{version=\"1.2\",node=\"18446744073709551615\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE mc_agent_uptime_seconds gauge\nmc_agent_uptime_seconds 7\n"));
  EXPECT_THAT(text,
              HasSubstr("mc_objects{namespace=\"a\"} 3\nmc_objects{namespace=\"b\\\"\\n\"} 4\n"));
  EXPECT_THAT(
      text,
      HasSubstr("mc_corrupt_objects_total{namespace=\"b\\\"\\n\",found_by=\"scrubber\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE mc_remote_misses_total counter\n"
                              "mc_remote_misses_total{reason=\"no_holder\"} 6\n"
                              "mc_remote_misses_total{reason=\"timeout\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("mc_cluster_master_ready 1\n"));
}

TEST(AgentMetrics, CountRequestsByStatusAndTheirWaits) {
  const std::string text = metrics_text(status_of(R"({"requests": {"put": {
    "ended": {"MC_OK": 9, "MC_NO_SPACE": 2}, "waited": {"counts": [1, 0, 2, 1], "sum_ns": 5000}}}})"));
  EXPECT_THAT(text, HasSubstr("mc_requests_total{op=\"put\",status=\"MC_OK\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("mc_requests_total{op=\"put\",status=\"MC_NO_SPACE\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("mc_request_wait_seconds_count{op=\"put\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("mc_request_wait_seconds_bucket{op=\"put\",le=\"1e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("mc_request_wait_seconds_bucket{op=\"put\",le=\"4e-06\"} 3\n"));
}

TEST(AgentMetrics, CountTheRailsOfATransportByState) {
  const std::string text = metrics_text(
      status_of(R"({"cluster": {"rails": {"rdma": {"up": 3, "idle": 2}, "odd": 4}}})"));
  EXPECT_THAT(text, HasSubstr("mc_rails{transport=\"rdma\",state=\"idle\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("mc_rails{transport=\"rdma\",state=\"up\"} 3\n"));
  EXPECT_THAT(text, Not(HasSubstr("odd")));
}

TEST(AgentMetrics, ShowTheLongestTurnOfTheLoopWithItsCause) {
  const std::string text = metrics_text(status_of(R"({"loop": {"tick": {
    "busy": {"counts": [0, 5], "sum_ns": 9000}, "longest_ns": 4000}}})"));
  EXPECT_THAT(text, HasSubstr("mc_loop_busy_seconds_count{cause=\"tick\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("mc_loop_longest_busy_seconds{cause=\"tick\"} 4e-06\n"));
}

TEST(AgentMetrics, ShowTheDisksOfTheTier) {
  const std::string text = metrics_text(status_of(R"({"tier": {"objects": 7, "recovering": false,
    "disks": [{"path": "/a", "serving": true, "puts": 5},
              {"path": "/b", "serving": false, "problem": "worn"}]}})"));
  EXPECT_THAT(text, HasSubstr("mc_tier_objects 7\n"));
  EXPECT_THAT(text, HasSubstr("mc_tier_disk_serving{disk=\"/a\"} 1\n"
                              "mc_tier_disk_serving{disk=\"/b\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("mc_tier_puts_total{disk=\"/a\"} 5\n"));
}

// The text may come from an agent of another version.
TEST(AgentMetrics, LeaveOutValuesOfOtherTypes) {
  constexpr const char* kStrange[] = {
      "null",
      "3",
      "\"text\"",
      "[]",
      R"({"namespaces": 3, "cluster": [], "requests": "no", "loop": 4})",
      R"({"uptime_s": "soon", "namespaces": [1, null, {"objects": []}]})",
      R"({"requests": {"put": 1, "get": {"ended": [], "waited": {"counts": 1}}}})",
      R"({"requests": {"put": {"ended": {"MC_OK": "many"}, "waited": {"sum_ns": 1}}}})",
      R"({"requests": {"put": {"waited": {"counts": ["a"], "sum_ns": 1}}}})",
      R"({"requests": {"put": {"waited": {"counts": [], "sum_ns": 1}}}, "loop": {"tick": 4}})"};
  for (const char* const strange : kStrange) {
    const std::string text = metrics_text(status_of(std::string("[") + strange + "]")[0]);
    EXPECT_THAT(text, HasSubstr("mc_agent_info")) << strange;
    EXPECT_THAT(text, Not(HasSubstr("nan"))) << strange;
    EXPECT_THAT(text, Not(HasSubstr("mc_agent_uptime_seconds"))) << strange;
  }
}

TEST(AgentMetrics, HaveATableInTheirPage) {
  const std::string path = MC_SOURCE_DIR "/agent/metrics/README.md";
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string table = metrics_table();
  EXPECT_NE(page.str().find(table), std::string::npos) << "put this table into " << path << ":\n"
                                                       << table;
}

}  // namespace
}  // namespace mc::agent
