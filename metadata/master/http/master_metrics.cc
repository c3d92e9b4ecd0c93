// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/master_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "libmc/http/metric_families.h"

namespace mc::metadata {

namespace {

using prometheus::MetricType;

void add_batches(http::MetricFamilies& out, const std::string& name, const char* what,
                 const MasterCounters::Batches& batches) {
  const auto add = [&](const char* suffix, const std::string& help, std::uint64_t value) {
    out.add(MetricType::Counter, "master_batch_" + name + suffix, help, value);
  };
  add("_requests_total", std::string("Batches of ") + what, batches.requests);
  add("_items_total", std::string("Items in batches of ") + what, batches.items);
  add("_failed_items_total", std::string("Failed items in batches of ") + what,
      batches.failed_items);
}

void add_storage(http::MetricFamilies& out, const MasterReport& report) {
  constexpr auto kGauge = MetricType::Gauge;
  out.add(kGauge, "master_allocated_bytes", "Bytes of objects in the pools of all hosts",
          used_bytes(report));
  out.add(kGauge, "master_total_capacity_bytes", "Bytes of the pools of all hosts",
          capacity_bytes(report));
  out.begin(kGauge, "segment_allocated_bytes", "Bytes of objects in the pool of a host");
  for (const wire::MemberInfo& one : report.members) {
    out.sample({{"segment", one.descriptor.address}}, one.used_bytes);
  }
  out.begin(kGauge, "segment_total_capacity_bytes", "Bytes of the pool of a host");
  for (const wire::MemberInfo& one : report.members) {
    out.sample({{"segment", one.descriptor.address}}, one.descriptor.capacity_bytes);
  }
  out.add(kGauge, "master_active_clients", "Agents: one for each host", report.members.size());
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string storage_text(const MasterReport& report) {
  const std::uint64_t capacity = capacity_bytes(report);
  std::string text = size_text(used_bytes(report)) + " / " + size_text(capacity);
  if (capacity != 0) text += fmt::format(" ({:.1f}%)", percent(used_bytes(report), capacity));
  return text;
}

}  // namespace

const char* role_of(const MasterReport& report) { return report.leads ? "leader" : "standby"; }

const char* state_of(const MasterReport& report) {
  if (!report.leads) return "standby";
  return report.stats.recovering ? "recovering" : "serving";
}

std::uint64_t used_bytes(const MasterReport& report) {
  std::uint64_t sum = 0;
  for (const wire::MemberInfo& one : report.members) sum += one.used_bytes;
  return sum;
}

std::uint64_t capacity_bytes(const MasterReport& report) {
  std::uint64_t sum = 0;
  for (const wire::MemberInfo& one : report.members) sum += one.descriptor.capacity_bytes;
  return sum;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string metrics_text(const MasterReport& report) {
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  http::MetricFamilies out;
  const MasterCounters& counters = report.counters;
  out.add(kGauge, "mc_master_leads", "1: this master leads the first partition", report.leads);
  out.add(kGauge, "mc_master_partitions_led", "Partitions that this master leads",
          report.partitions_led);
  out.add(kGauge, "mc_master_partitions_without_store",
          "Partitions that this master leads although the cluster store does not answer",
          report.partitions_without_store);
  out.add(kCounter, "mc_master_leaderships_total", "Leaderships of partitions that have begun",
          report.counters.leaderships);
  out.add(kCounter, "mc_master_leaderships_ended_total",
          "Leaderships of partitions that this master has lost or resigned",
          report.counters.ended_leaderships);
  out.add(kCounter, "mc_master_reports_total", "Complete reports of agents about their objects",
          report.counters.reports);
  if (report.leads) add_storage(out, report);
  const wire::StatsAnswer& stats = report.stats;
  out.add(kGauge, "master_key_count",
          "Keys in the led partitions; a key counts once for each host that holds it",
          stats.entries);
  add_batches(out, "put_end", "changes that agents published", counters.publish);
  add_batches(out, "get_replica_list", "lookups", counters.locate);
  add_batches(out, "put_start", "puts for which this master chose hosts", counters.place);
  out.add(kCounter, "master_put_start_alloc_failures_total", "Puts for which no host had room",
          counters.place.failed_items);
  out.add(kCounter, "master_remove_requests_total", "Removed keys", counters.remove.items);
  out.add(kCounter, "master_remove_failures_total", "Removals of keys that were not there",
          counters.remove.failed_items);
  out.add(kCounter, "master_remove_by_regex_requests_total", "Removals by regular expression",
          counters.removals_by_regex);
  out.add(kCounter, "master_remove_all_requests_total", "Removals of all keys, or of a prefix",
          counters.removals_of_all);
  out.add(kCounter, "master_mount_segment_requests_total", "Joins of agents", counters.joins);
  out.add(kCounter, "master_unmount_segment_requests_total", "Farewells of agents",
          counters.leaves);
  out.add(kCounter, "master_ping_requests_total", "Heartbeats of agents", counters.heartbeats);
  out.add(kCounter, "master_copy_start_requests_total", "Copies ordered from agents",
          counters.copies);
  out.add(kCounter, "master_copy_start_failures_total", "Copies that failed",
          counters.failed_copies);
  out.add(kGauge, "mc_master_recovering", "1: not all agents have reported their objects",
          stats.recovering);
  out.add(kGauge, "mc_master_reports_missing", "Agents that have not reported their objects",
          stats.reports_missing);
  out.add(kGauge, "mc_master_tombstones", "Removed versions that are remembered", stats.tombstones);
  out.add(kGauge, "mc_master_directory_bytes", "Memory of the directory", stats.memory_bytes);
  out.add(kGauge, "mc_master_repairs_queued", "Keys that lack replicas", stats.repairs_queued);
  out.add(kGauge, "mc_master_repairs_running", "Copies that are being made", stats.repairs_running);
  out.add(kGauge, "mc_master_links", "Open links", stats.links);
  out.add(kCounter, "mc_master_refused_links_total", "Links without a proof of the key",
          stats.refused_links);
  return out.text();
}

std::string MetricsLines::summary(const MasterReport& report, std::uint64_t now_ns) {
  const MasterCounters& now = report.counters;
  const double seconds =
      before_ns_ == 0 ? 0
                      : static_cast<double>(std::max(now_ns - before_ns_, std::uint64_t{1})) / 1e9;
  const auto rate = [&](std::uint64_t was, std::uint64_t is) {
    return seconds == 0 ? 0 : static_cast<double>(is - was) / seconds;
  };
  const auto pair = [&](std::uint64_t was, std::uint64_t is, std::uint64_t failed_before,
                        std::uint64_t failed) {
    return fmt::format("{:.2f}/{:.2f}", rate(was - failed_before, is - failed), rate(was, is));
  };
  const auto batches = [&](const MasterCounters::Batches& was, const MasterCounters::Batches& is) {
    const double requests = rate(was.requests, is.requests);
    return fmt::format("(Req={:.2f}/{:.2f}, Item={})", requests, requests,
                       pair(was.items, is.items, was.failed_items, is.failed_items));
  };
  const auto alone = [&](std::uint64_t was, std::uint64_t is) { return pair(was, is, 0, 0); };
  std::string text = fmt::format(
      "role={}, state={}, service_ready={}, master={{Mem Storage: {} | Keys: {} | Clients: {} | "
      "Requests (Success/Total per sec): Del={}, DelAll={}, DelRegex={}, Ping={}, CopyStart={} | "
      "Batch Requests (per sec, Req=Success/Total, Item=Success/Total): PutStart:{}, PutEnd:{}, "
      "Get:{} | AllocFail={}}}",
      role_of(report), state_of(report), is_ready(report), storage_text(report),
      report.stats.entries, report.members.size(),
      pair(before_.remove.items, now.remove.items, before_.remove.failed_items,
           now.remove.failed_items),
      alone(before_.removals_of_all, now.removals_of_all),
      alone(before_.removals_by_regex, now.removals_by_regex),
      alone(before_.heartbeats, now.heartbeats),
      pair(before_.copies, now.copies, before_.failed_copies, now.failed_copies),
      batches(before_.place, now.place), batches(before_.publish, now.publish),
      batches(before_.locate, now.locate), now.place.failed_items);
  if (!report.leads && !report.leader.empty()) text += ", leader=" + report.leader;
  if (report.leads) text += fmt::format(", view_version={}", report.epoch);
  before_ = now;
  before_ns_ = now_ns;
  return text;
}

std::string MetricsLines::storage(const MasterReport& report) {
  return "Storage: " + storage_text(report) + " | Keys: " + std::to_string(report.stats.entries);
}

}  // namespace mc::metadata
