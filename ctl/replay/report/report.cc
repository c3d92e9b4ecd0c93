// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/summary.h"

#include <cmath>

#include <fmt/format.h>

#include "ctl/replay/report/chart.h"
#include "ctl/text/size.h"

namespace mc::ctl {

using namespace fmt::literals;

namespace {

constexpr std::string_view kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>mc replay</title><style>{style}</style></head>
<body><main><h1>Replay of {trace}</h1><p class="note">{how}</p>
<div class="tiles">{tiles}</div>
<div class="charts">{charts}</div>
<h2>Summary</h2>
<div class="tables"><div class="card"><table>{summary}</table></div>
<div class="card"><table>{latencies}</table></div></div>
<h2>Command</h2><pre>{command}</pre></main></body></html>
)html";

constexpr std::string_view kTile =
    R"html(<div class="tile{style}"><b>{value}</b><span>{label}</span></div>)html";

constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--page:#f7f7f5;--card:#fff;--ink:#17181a;--soft:#5c6066;--rule:#e3e3df;
--s0:#2a78d6;--s1:#8a8f98;--s2:#12915f;--s3:#d9822b;--bad:#c62f2f}
@media(prefers-color-scheme:dark){:root{--page:#141517;--card:#1d1f22;--ink:#eceded;--soft:#a2a7ae;
--rule:#33363b;--s0:#5aa2f2;--s1:#8f959e;--s2:#3cc08a;--s3:#eda04e;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 12px}
.note{color:var(--soft);margin:0;font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:22px 0}
.tile,figure,.card{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.tile{padding:14px 16px}.tile b{display:block;font-size:23px;font-weight:600;line-height:1.3}
.tile span{color:var(--soft);font-size:13px}.bad b{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0;padding:16px 16px 8px}figcaption{font-weight:600}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0 2px;font-size:13px;color:var(--soft)}
.legend span{display:inline-flex;align-items:center;gap:6px}
svg.chart{display:block;width:100%;height:auto}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.tick,.label{font-size:12px;fill:var(--soft)}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.dashed{stroke-dasharray:5 4}
.area{opacity:.13;stroke:none}.hover{opacity:0;pointer-events:all}.hover:hover{opacity:1}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2)}.line.s3{stroke:var(--s3)}
.area.s0,.hover.s0{fill:var(--s0)}.area.s1,.hover.s1{fill:var(--s1)}
.area.s2,.hover.s2{fill:var(--s2)}.area.s3,.hover.s3{fill:var(--s3)}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px}
.card{padding:6px 16px;align-self:start;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:6px 0;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
td+td,th+th{text-align:right;padding-left:14px}tr:last-child td{border-bottom:0}
th{font-weight:600;color:var(--soft);font-size:13px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 16px;margin:0;
white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,monospace}
)css";

std::string percent(double ratio) {
  const bool whole = std::fabs(ratio * 100 - std::round(ratio * 100)) < 1e-9;
  return fmt::format("{:.{}f} %", ratio * 100, whole ? 0 : 1);
}

std::string count(double value) {
  return format_count(static_cast<std::uint64_t>(std::llround(std::max(value, 0.0))));
}

std::string seconds(double value) { return fmt::format("{:.4g}", value); }

std::string byte_rate(double value) {
  return format_bytes(static_cast<std::uint64_t>(std::max(value, 0.0))) + "/s";
}

// A round number of nanoseconds for an axis: "10 us", not "10.0 us".
std::string latency(double ns) {
  std::string text = format_duration_ns(ns);
  const std::size_t space = text.find(' ');
  const std::size_t dot = text.find('.');
  if (dot == std::string::npos || space == std::string::npos || dot > space) return text;
  const std::size_t kept = text.find_last_not_of('0', space - 1);
  text.erase(kept == dot ? dot : kept + 1, space - (kept == dot ? dot : kept + 1));
  return text;
}

ChartAxis time_axis() { return {.label = "time since the start (s)", .format = seconds}; }

Chart hit_chart(const ReplaySummary& s) {
  Chart chart;
  chart.title = "Prefix hit ratio over the trace";
  chart.note =
      s.unlimited()
          ? "Share of all block references so far. The pool holds every block of the trace."
          : "Share of all block references so far, beside LRU and the optimum with room for " +
                format_count(s.reference_blocks) + " blocks" +
                (s.tier ? " in DRAM and on the SSD together." : ".");
  chart.x = {.label = "requests of the trace", .format = count};
  chart.y = {.label = "hit ratio", .format = percent, .least_top = 0.2};
  if (s.unlimited()) {
    chart.series.push_back({"infinite cache", 2, true, false, s.optimum_ratio});
  } else {
    chart.series.push_back({"optimum", 2, true, false, s.optimum_ratio});
    chart.series.push_back({"LRU", 1, true, false, s.lru_ratio});
  }
  chart.series.push_back({"this replay (" + s.policy + ")", 0, false, false, s.hit_ratio});
  if (s.tier) chart.series.push_back({"of these in DRAM", 3, false, true, s.dram_ratio});
  return chart;
}

Curve distribution(const LatencyHistogram& histogram) {
  Curve curve;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i + 1 < LatencyHistogram::kBuckets; ++i) {
    if (histogram.bucket_count(i) == 0) continue;
    if (curve.empty()) curve.emplace_back(LatencyHistogram::bucket_floor_ns(i), 0.0);
    seen += histogram.bucket_count(i);
    curve.emplace_back(LatencyHistogram::bucket_floor_ns(i + 1),
                       static_cast<double>(seen) / static_cast<double>(histogram.count()));
  }
  return curve;
}

Chart latency_chart(const ReplaySummary& s) {
  Chart chart;
  chart.title = "Latency";
  chart.note = "Share of the calls that took at most so long; of a block: its share of its batch.";
  chart.x = {.label = "latency", .format = latency, .logarithmic = true};
  chart.y = {.label = "share of calls", .format = percent};
  chart.series = {{"get, a block", 0, false, false, distribution(s.result.get_block)},
                  {"get, a lookup batch", 0, true, false, distribution(s.result.get_batch)},
                  {"put, a block", 3, false, false, distribution(s.result.put_block)},
                  {"put, a batch", 3, true, false, distribution(s.result.put_batch)}};
  return chart;
}

Chart occupancy_chart(const ReplaySummary& s) {
  Chart chart;
  chart.title = "Occupancy";
  chart.note =
      s.occupancy_is_estimate
          ? "Blocks inserted, at most the capacity: an embedded pool is not asked."
          : "Objects in the pool, as its agent says, of " + format_bytes(s.block_bytes) + " each.";
  chart.x = time_axis();
  const std::uint64_t block_bytes = s.block_bytes;
  chart.y = {.label = "objects", .format = count};
  chart.series.push_back({"objects", 0, false, true, s.occupancy});
  // The axis has one unit; the size in bytes is in the text.
  const double last = s.occupancy.empty() ? 0 : s.occupancy.back().second;
  chart.note += " At the end: " + count(last) + " objects, " +
                format_bytes(static_cast<std::uint64_t>(last) * block_bytes) + ".";
  if (s.dram_blocks < s.distinct_blocks && !s.occupancy.empty()) {
    const auto capacity = static_cast<double>(s.dram_blocks);
    chart.series.push_back(
        {"capacity", 1, true, false, {{0.0, capacity}, {s.occupancy.back().first, capacity}}});
  }
  return chart;
}

Chart throughput_chart(const ReplaySummary& s) {
  Chart chart;
  chart.title = "Throughput";
  chart.note = "Bytes got (and verified) and bytes put, all workers together.";
  chart.x = time_axis();
  chart.y = {.label = "bytes a second", .format = byte_rate, .binary = true};
  chart.series = {{"got", 0, false, true, s.get_rate}, {"put", 3, false, true, s.put_rate}};
  return chart;
}

std::string tile(const std::string& value, const std::string& label, bool bad = false) {
  return fmt::format(kTile, "style"_a = bad ? " bad" : "", "value"_a = html_escape(value),
                     "label"_a = html_escape(label));
}

std::string tiles(const ReplaySummary& s) {
  const WorkerTotals& totals = s.result.totals;
  const double bytes = static_cast<double>(totals.got_bytes() + totals.put_bytes);
  const std::string reference =
      s.unlimited()
          ? "prefix hits (infinite cache " + format_percent(s.reference_ratio(s.optimum_hits)) + ")"
          : "prefix hits (LRU " + format_percent(s.reference_ratio(s.lru_hits)) + ", optimum " +
                format_percent(s.reference_ratio(s.optimum_hits)) + ")";
  std::string ssd;
  if (s.tier) {
    ssd = tile(format_percent(s.ratio(s.dram_hits())) + " + " +
                   format_percent(s.ratio(totals.fetched_refs)),
               "prefix hits in DRAM + on the SSD") +
          tile(format_amplification(*s.tier), "bytes written to the SSD for each byte demoted (" +
                                                  format_bytes(s.tier->written_bytes) + " in all)");
  }
  return tile(format_percent(s.ratio(totals.hit_refs)), reference) + ssd +
         tile(s.seconds > 0 ? byte_rate(bytes / s.seconds) : "-", "got and put") +
         tile(format_duration_ns(s.result.get_block.percentile_ns(0.5)), "get of a block, median") +
         tile(format_duration_ns(s.result.put_block.percentile_ns(0.5)), "put of a block, median") +
         tile(format_bytes(totals.view_bytes), "read in place, copies avoided") +
         tile(format_count(totals.wrong_bytes), "wrong bytes", totals.wrong_bytes != 0);
}

std::string row(const std::vector<std::string>& cells, std::string_view tag) {
  std::string out;
  for (const std::string& cell : cells) {
    out += fmt::format("<{0}>{1}</{0}>", tag, html_escape(cell));
  }
  return fmt::format("<tr>{}</tr>\n", out);
}

}  // namespace

std::string report_html(const ReplaySummary& s) {
  std::string charts, summary, latencies = row(latency_header(), "th");
  for (const Chart& chart :
       {hit_chart(s), latency_chart(s), occupancy_chart(s), throughput_chart(s)}) {
    charts += chart_svg(chart);
  }
  for (const auto& [label, value] : summary_rows(s)) summary += row({label, value}, "td");
  for (const auto& cells : latency_rows(s)) latencies += row(cells, "td");
  const std::string how =
      fmt::format("{} {}, {} blocks, policy {}, {}", format_count(s.workers),
                  s.workers == 1 ? "worker" : "workers", format_bytes(s.block_bytes), s.policy,
                  s.tier ? "embedded pool with an SSD of " + format_bytes(s.ssd_bytes)
                         : std::string(s.embedded ? "embedded pool" : "agent of this host"));
  return fmt::format(kPage, "style"_a = kPageStyle, "trace"_a = html_escape(s.trace),
                     "how"_a = html_escape(how), "tiles"_a = tiles(s), "charts"_a = charts,
                     "summary"_a = summary, "latencies"_a = latencies,
                     "command"_a = html_escape(s.command_line));
}

}  // namespace mc::ctl
