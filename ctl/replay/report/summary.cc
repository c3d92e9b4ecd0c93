// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/summary.h"

#include <algorithm>
#include <cstdio>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

constexpr std::size_t kReferencePoints = 40;
constexpr std::size_t kRatePoints = 120;
constexpr double kTimeBinSeconds = static_cast<double>(kTimeBinNs) / 1e9;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string rate(std::uint64_t bytes, double seconds) {
  if (seconds <= 0) return "-";
  return format_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds)) + "/s";
}

std::vector<std::string> latency_row(const std::string& name, const LatencyHistogram& histogram) {
  std::vector<std::string> row{name};
  for (const double fraction : {0.5, 0.9, 0.99, 0.999}) {
    row.push_back(histogram.count() == 0 ? "-"
                                         : format_duration_ns(histogram.percentile_ns(fraction)));
  }
  row.push_back(format_count(histogram.count()));
  return row;
}

}  // namespace

std::string format_percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %%", ratio * 100);
  return text;
}

std::string format_amplification(const TierState& tier) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", tier.amplification());
  return tier.demoted_bytes == 0 ? "-" : text;
}

double ReplaySummary::ratio(std::uint64_t hits) const {
  return share(hits, result.totals.block_refs);
}

double ReplaySummary::optimum_share() const {
  const double optimum = reference_ratio(optimum_hits);
  return optimum == 0 ? 0 : ratio(result.totals.hit_refs) / optimum;
}

double ReplaySummary::reference_ratio(std::uint64_t hits) const { return share(hits, trace_refs); }

void add_worker_curves(ReplaySummary& summary, std::size_t request_count) {
  const std::vector<HitBin>& bins = summary.result.by_request;
  HitBin sum;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    sum.refs += bins[i].refs;
    sum.hits += bins[i].hits;
    sum.fetched += bins[i].fetched;
    if (sum.refs == 0) continue;
    const double x = static_cast<double>(request_count) * static_cast<double>(i + 1) /
                     static_cast<double>(bins.size());
    summary.hit_ratio.emplace_back(x, share(sum.hits, sum.refs));
    if (summary.tier) summary.dram_ratio.emplace_back(x, share(sum.hits - sum.fetched, sum.refs));
  }

  const std::vector<TimeBin>& times = summary.result.by_time;
  const std::size_t width =
      std::max<std::size_t>(1, (times.size() + kRatePoints - 1) / kRatePoints);
  std::uint64_t inserted = 0;
  for (std::size_t first = 0; first < times.size(); first += width) {
    const std::size_t end = std::min(first + width, times.size());
    TimeBin bin;
    for (std::size_t i = first; i < end; ++i) {
      bin.got_bytes += times[i].got_bytes;
      bin.put_bytes += times[i].put_bytes;
      inserted += times[i].inserted;
    }
    // The end of the replay shortens the last bin.
    const double begin_s = static_cast<double>(first) * kTimeBinSeconds;
    const double end_s = std::min(static_cast<double>(end) * kTimeBinSeconds,
                                  std::max(summary.seconds, begin_s + kTimeBinSeconds / 10));
    const double middle_s = (begin_s + end_s) / 2;
    summary.get_rate.emplace_back(middle_s, static_cast<double>(bin.got_bytes) / (end_s - begin_s));
    summary.put_rate.emplace_back(middle_s, static_cast<double>(bin.put_bytes) / (end_s - begin_s));
    if (summary.occupancy_is_estimate) {
      summary.occupancy.emplace_back(
          end_s, static_cast<double>(
                     std::min(inserted, std::min(summary.dram_blocks, summary.distinct_blocks))));
    }
  }
}

void add_reference_curves(ReplaySummary& summary, const Trace& trace) {
  Trace part;
  part.block_count = trace.block_count;
  for (std::size_t point = 1; point <= kReferencePoints; ++point) {
    const std::size_t end = trace.requests.size() * point / kReferencePoints;
    while (part.requests.size() < end) {
      part.requests.push_back(trace.requests[part.requests.size()]);
      part.reference_count += part.requests.back().blocks.size();
    }
    if (part.reference_count == 0) continue;
    summary.trace_refs = part.reference_count;
    summary.lru_hits = lru_prefix_hits(part, summary.reference_blocks);
    summary.optimum_hits = optimal_prefix_hits(part, summary.reference_blocks);
    const auto x = static_cast<double>(end);
    summary.lru_ratio.emplace_back(x, share(summary.lru_hits, part.reference_count));
    summary.optimum_ratio.emplace_back(x, share(summary.optimum_hits, part.reference_count));
  }
}

namespace {

void add_tier_rows(const TierState& tier, std::vector<std::pair<std::string, std::string>>& rows) {
  rows.emplace_back("demoted to the SSD", format_bytes(tier.demoted_bytes) + " in " +
                                              format_count(tier.demoted_blocks) + " blocks");
  rows.emplace_back("  not written", format_count(tier.lost_blocks) + " blocks");
  rows.emplace_back("written to the SSD", format_bytes(tier.written_bytes));
  rows.emplace_back("  written / demoted", format_amplification(tier));
  rows.emplace_back("read from the SSD", format_count(tier.read_blocks) + " blocks, " +
                                             format_count(tier.promoted_blocks) + " promoted");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> summary_rows(const ReplaySummary& summary) {
  const WorkerTotals& totals = summary.result.totals;
  std::vector<std::pair<std::string, std::string>> rows;
  const auto add = [&rows](const char* label, std::string value) {
    rows.emplace_back(label, std::move(value));
  };
  add("requests", format_count(totals.requests));
  add("block references", format_count(totals.block_refs));
  add("block size", format_bytes(summary.block_bytes));
  add("policy", summary.policy);
  add("capacity", summary.capacity_blocks == 0
                      ? "unlimited, in a pool of " + format_bytes(summary.pool_bytes)
                      : format_count(summary.capacity_blocks) + " blocks");
  if (summary.tier) add("SSD", format_bytes(summary.ssd_bytes));
  add("prefix hits", format_count(totals.hit_refs));
  add("prefix hit ratio", format_percent(summary.ratio(totals.hit_refs)));
  if (summary.hosts > 0) {
    const std::uint64_t local = summary.dram_hits();
    const std::uint64_t missed = totals.block_refs - totals.hit_refs;
    add("hosts", format_count(summary.hosts));
    add("  hits on the own host",
        format_count(local) + ", " + format_percent(summary.ratio(local)));
    add("  hits on another host", format_count(totals.fetched_refs) + ", " +
                                      format_percent(summary.ratio(totals.fetched_refs)));
    add("  misses", format_count(missed) + ", " + format_percent(summary.ratio(missed)));
  }
  if (summary.tier) {
    add("  hits in DRAM", format_count(summary.dram_hits()) + ", " +
                              format_percent(summary.ratio(summary.dram_hits())));
    add("  hits on the SSD", format_count(totals.fetched_refs) + ", " +
                                 format_percent(summary.ratio(totals.fetched_refs)));
  }
  if (summary.unlimited()) {
    add("  an infinite cache", format_percent(summary.reference_ratio(summary.optimum_hits)));
  } else {
    add(summary.tier ? "  LRU of both sizes" : "  LRU of that size",
        format_percent(summary.reference_ratio(summary.lru_hits)));
    add("  the optimum", format_percent(summary.reference_ratio(summary.optimum_hits)));
  }
  if (summary.tier) {
    add("  share of the optimum", format_percent(summary.optimum_share()));
    add_tier_rows(*summary.tier, rows);
  }
  add("evictions", summary.evictions ? (summary.evictions_exact ? "" : "at most ") +
                                           format_count(*summary.evictions)
                                     : "n/a");
  add("bytes got", format_bytes(totals.got_bytes()));
  add("bytes put", format_bytes(totals.put_bytes));
  add("copies avoided", format_bytes(totals.view_bytes) + " read in place");
  add("time", format_duration_ns(summary.seconds * 1e9));
  add("throughput", rate(totals.got_bytes() + totals.put_bytes, summary.seconds));
  if (totals.failed_gets > 0) add("failed gets", format_count(totals.failed_gets));
  if (totals.failed_puts > 0) add("failed puts", format_count(totals.failed_puts));
  add("wrong bytes", format_count(totals.wrong_bytes));
  return rows;
}

std::vector<std::string> latency_header() {
  return {"latency", "p50", "p90", "p99", "p99.9", "count"};
}

std::vector<std::vector<std::string>> latency_rows(const ReplaySummary& summary) {
  return {latency_row("get, a block", summary.result.get_block),
          latency_row("get, a lookup batch", summary.result.get_batch),
          latency_row("put, a block", summary.result.put_block),
          latency_row("put, a batch", summary.result.put_batch)};
}

std::string summary_text(const ReplaySummary& summary) {
  Table facts({"replay", ""});
  for (const auto& [label, value] : summary_rows(summary)) facts.add_row({label, value});
  Table latencies(latency_header());
  for (const auto& row : latency_rows(summary)) latencies.add_row(row);
  return facts.to_string() + "\n" + latencies.to_string();
}

std::string summary_json(const ReplaySummary& summary) {
  const WorkerTotals& totals = summary.result.totals;
  Json::Value json;
  const auto count = [&json](const char* name, std::uint64_t value) {
    json[name] = Json::UInt64{value};
  };
  json["trace"] = summary.trace;
  json["policy"] = summary.policy;
  json["workers"] = summary.workers;
  json["embedded"] = summary.embedded;
  count("block_bytes", summary.block_bytes);
  count("pool_bytes", summary.pool_bytes);
  count("capacity_blocks", summary.capacity_blocks);
  count("reference_blocks", summary.reference_blocks);
  count("requests", totals.requests);
  count("block_refs", totals.block_refs);
  count("hit_refs", totals.hit_refs);
  json["hit_ratio"] = summary.ratio(totals.hit_refs);
  json["hosts"] = summary.hosts;
  count("remote_hit_refs", summary.tier ? 0 : totals.fetched_refs);
  json["lru_hit_ratio"] = summary.reference_ratio(summary.lru_hits);
  json["optimum_hit_ratio"] = summary.reference_ratio(summary.optimum_hits);
  if (summary.tier) {
    const TierState& tier = *summary.tier;
    count("ssd_bytes", summary.ssd_bytes);
    count("dram_hit_refs", summary.dram_hits());
    count("ssd_hit_refs", totals.fetched_refs);
    count("ssd_demoted_blocks", tier.demoted_blocks);
    count("ssd_demoted_bytes", tier.demoted_bytes);
    count("ssd_lost_blocks", tier.lost_blocks);
    count("ssd_written_bytes", tier.written_bytes);
    count("ssd_copied_bytes", tier.copied_bytes);
    count("ssd_dropped_blocks", tier.dropped_blocks);
    count("ssd_read_blocks", tier.read_blocks);
    count("ssd_promoted_blocks", tier.promoted_blocks);
    count("ssd_on_the_way_blocks", tier.on_the_way_blocks);
    json["optimum_share"] = summary.optimum_share();
    json["ssd_write_amplification"] = tier.amplification();
  }
  count("wrong_bytes", totals.wrong_bytes);
  count("failed_gets", totals.failed_gets);
  count("failed_puts", totals.failed_puts);
  count("got_bytes", totals.got_bytes());
  count("view_bytes", totals.view_bytes);
  count("put_bytes", totals.put_bytes);
  json["evictions"] = summary.evictions ? Json::Value(Json::UInt64{*summary.evictions})
                                        : Json::Value(Json::nullValue);
  json["evictions_exact"] = summary.evictions_exact;
  const auto percentiles = [&json](const std::string& name, const LatencyHistogram& histogram) {
    json[name + "_p50_ns"] = histogram.percentile_ns(0.5);
    json[name + "_p90_ns"] = histogram.percentile_ns(0.9);
    json[name + "_p99_ns"] = histogram.percentile_ns(0.99);
    json[name + "_p999_ns"] = histogram.percentile_ns(0.999);
  };
  percentiles("get", summary.result.get_block);
  percentiles("get_batch", summary.result.get_batch);
  percentiles("put", summary.result.put_block);
  percentiles("put_batch", summary.result.put_batch);
  json["seconds"] = summary.seconds;
  return json_line(json, 9) + "\n";
}

}  // namespace mc::ctl
