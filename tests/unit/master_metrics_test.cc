// SPDX-License-Identifier: Apache-2.0
//
// The metrics of a master's report, and their page.
#include "metadata/master/http/master_metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace mc::metadata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MasterReport report_of_leader() {
  MasterReport report;
  report.leads = true;
  report.partitions_led = 2;
  report.members.resize(2);
  report.members[0].descriptor.address = "10.0.0.1:7401";
  report.members[0].used_bytes = 5;
  report.members[1].descriptor.address = "10.0.0.2:7401";
  report.members[1].used_bytes = 6;
  report.counters.leaderships = 3;
  return report;
}

// The metrics of the text as a table in Markdown: name, kind, labels, meaning.
std::string table_of(const std::string& text) {
  std::istringstream lines(text);
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  std::string line, name, help, kind;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) {
      name = line.substr(7, line.find(' ', 7) - 7);
      help = line.substr(7 + name.size() + 1);
    } else if (line.starts_with("# TYPE ")) {
      kind = line.substr(line.rfind(' ') + 1);
    } else if (!name.empty()) {
      const std::size_t brace = line.find('{');
      const std::string label =
          brace == std::string::npos
              ? ""
              : fmt::format("`{}`", line.substr(brace + 1, line.find('=') - brace - 1));
      out += fmt::format("| `{}` | {} | {} | {} |\n", name, kind, label, help);
      name.clear();  // one row for all samples
    }
  }
  return out;
}

TEST(MasterMetrics, SumTheHostsAndCountLeaderships) {
  const std::string text = metrics_text(report_of_leader());
  EXPECT_THAT(text, HasSubstr("master_allocated_bytes 11\n"));
  EXPECT_THAT(text, HasSubstr("segment_allocated_bytes{segment=\"10.0.0.2:7401\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("mc_master_leaderships_total 3\n"));
}

TEST(MasterMetrics, OfAStandbyHaveNoHosts) {
  EXPECT_THAT(metrics_text(MasterReport{}), Not(HasSubstr("segment_allocated_bytes")));
}

TEST(MasterMetrics, HaveATableInTheirPage) {
  const std::string path = MC_SOURCE_DIR "/metadata/master/http/README.md";
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string table = table_of(metrics_text(report_of_leader()));
  EXPECT_NE(page.str().find(table), std::string::npos) << "put this table into " << path << ":\n"
                                                       << table;
}

}  // namespace
}  // namespace mc::metadata
