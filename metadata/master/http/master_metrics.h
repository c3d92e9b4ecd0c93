// SPDX-License-Identifier: Apache-2.0
//
// A master's report as metrics under Mooncake's names, for Mooncake's dashboards and log readers.
//   Metrics of parts that mc lacks are left out.
// Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "metadata/master/master_report.h"

namespace mc::metadata {

// The text format of Prometheus. A standby shows no members, so that sums over masters are right.
std::string metrics_text(const MasterReport& report);

// Lines of text for people. The rates count from the line before.
class MetricsLines {
 public:
  // As Mooncake 0.3.13: "role=leader, state=serving, …, master={Mem Storage: … | Keys: … | …}".
  std::string summary(const MasterReport& report, std::uint64_t now_ns);
  // As Mooncake 0.3.6: "Storage: 1.00 GB / 30.00 GB (3.3%) | Keys: 12".
  static std::string storage(const MasterReport& report);

 private:
  MasterCounters before_;
  std::uint64_t before_ns_ = 0;  // 0: there was no line
};

// "leader" or "standby"; "serving", "recovering" or "standby".
const char* role_of(const MasterReport& report);
const char* state_of(const MasterReport& report);
inline bool is_ready(const MasterReport& report) {
  return report.leads && !report.stats.recovering;
}
// Sums over all members.
std::uint64_t used_bytes(const MasterReport& report);
std::uint64_t capacity_bytes(const MasterReport& report);
double percent(std::uint64_t part, std::uint64_t whole);

}  // namespace mc::metadata
