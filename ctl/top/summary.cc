// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/summary.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl::top {
namespace {

constexpr std::size_t kPlainRows = 10;

// "-" for an unknown rate.
std::string count_rate(const Json::Value& rates, std::string_view name) {
  if (field(rates, name).isNull()) return "-";
  return format_count(number_field(rates, name)) + "/s";
}

std::string byte_rate(const Json::Value& rates, std::string_view name) {
  if (field(rates, name).isNull()) return "-";
  return bytes_field(rates, name) + "/s";
}

// The last bucket of a histogram has no bound.
std::string bound_text(const Json::Value& of, std::string_view name) {
  const Json::Value& bound_ns = field(of, name);
  if (bound_ns.isNull()) return "over 16 s";
  return "below " + format_duration_ns(static_cast<double>(number_field(of, name)));
}

Fact master_fact(const Json::Value& cluster) {
  const std::string id = text_field(cluster, "id");
  const std::string name = id.empty() ? "cluster" : "cluster " + printable(id);
  if (flag_field(cluster, "master_ready")) return {name + ": the master knows this agent"};
  const std::string trouble = printable(text_field(cluster, "master_trouble"));
  return {name + ": no master knows this agent" + (trouble.empty() ? "" : ": " + trouble), true};
}

Paragraph agent_facts(const Json::Value& sample) {
  const std::string version = printable(text_field(sample, "version"));
  return {{"agent" + (version.empty() ? "" : " " + version)},
          {fmt::format("pid {}", number_field(sample, "pid"))},
          {"up " + format_duration_ns(static_cast<double>(number_field(sample, "uptime_s")) * 1e9)},
          {fmt::format("sessions {}", format_count(number_field(sample, "sessions_open")))}};
}

Paragraph read_and_put_facts(const Json::Value& sample) {
  const Json::Value& rates = field(sample, "rates");
  const Json::Value& ratio = field(sample, "hit_ratio");
  return {{fmt::format("gets {}, {}", count_rate(rates, "gets_per_s"),
                       byte_rate(rates, "get_bytes_per_s"))},
          {ratio.isNumeric() ? fmt::format("hit ratio {:.1f}%", 100 * ratio.asDouble())
                             : "hit ratio -"},
          {fmt::format("puts {}, {}", count_rate(rates, "puts_per_s"),
                       byte_rate(rates, "put_bytes_per_s"))}};
}

Paragraph work_facts(const Json::Value& sample) {
  const Json::Value& rates = field(sample, "rates");
  return {{"requests " + count_rate(rates, "requests_per_s")},
          {"evictions " + count_rate(rates, "evictions_per_s")},
          {"no space " + count_rate(rates, "no_space_per_s")}};
}

Paragraph cluster_facts(const Json::Value& sample) {
  const Json::Value& cluster = field(sample, "cluster");
  const Json::Value& rates = field(sample, "rates");
  return {master_fact(cluster),
          {fmt::format("members {}, lost {}", number_field(cluster, "members"),
                       number_field(cluster, "peers_lost"))},
          {"fetched " + byte_rate(rates, "fetched_bytes_per_s")},
          {"served " + byte_rate(rates, "served_bytes_per_s")},
          {"remote gets " + count_rate(rates, "remote_gets_per_s")}};
}

// The disks that have lost their objects come first.
Paragraph tier_facts(const Json::Value& tier) {
  Paragraph facts;
  for (const Json::Value& disk : array_field(tier, "disks")) {
    const std::string state = text_field(disk, "state");
    if (state != "refused" && state != "failed") continue;
    const std::string problem = printable(text_field(disk, "problem"));
    facts.push_back({fmt::format("disk {} is {}{}", printable(text_field(disk, "path")), state,
                                 problem.empty() ? "" : ": " + problem),
                     true});
  }
  facts.push_back(
      {fmt::format("disks {} of {}, {} objects", bytes_field(tier, "live_bytes"),
                   bytes_field(tier, "bytes"), format_count(number_field(tier, "objects")))});
  facts.push_back({"demoted " + byte_rate(tier, "demoted_bytes_per_s")});
  facts.push_back({fmt::format("read {}, {}", count_rate(tier, "reads_per_s"),
                               byte_rate(tier, "read_bytes_per_s"))});
  facts.push_back({"evicted without a disk " + count_rate(tier, "lost_per_s")});
  return facts;
}

Paragraph latency_facts(const Json::Value& sample) {
  Paragraph facts;
  const Json::Value& all = field(sample, "latencies");
  if (!all.isObject()) return facts;
  for (const std::string& operation : all.getMemberNames()) {
    const Json::Value& of = all[operation];
    facts.push_back({fmt::format(
        "{}{}: p50 {}, p99 {} ({} waited)", facts.empty() ? "latency " : "", printable(operation),
        bound_text(of, "p50_below_ns"), bound_text(of, "p99_below_ns"), count_rate(of, "per_s"))});
  }
  return facts;
}

Paragraph loop_facts(const Json::Value& sample) {
  Paragraph facts;
  const Json::Value& loop = field(sample, "loop");
  if (!field(loop, "cause").isNull()) {
    facts.push_back({fmt::format("longest turn {} ({})", bound_text(loop, "longest_below_ns"),
                                 printable(text_field(loop, "cause")))});
  }
  if (!field(loop, "cause_ever").isNull()) {
    facts.push_back(
        {fmt::format("{} {} ({})", facts.empty() ? "longest turn ever" : "ever",
                     format_duration_ns(static_cast<double>(number_field(loop, "longest_ever_ns"))),
                     printable(text_field(loop, "cause_ever")))});
  }
  return facts;
}

bool is_idle(const Json::Value& row, const TopTable& table) {
  return !table.idle.front().empty() && std::ranges::all_of(table.idle, [&](std::string_view name) {
    return number_field(row, name) == 0;
  });
}

std::string table_text(const Json::Value& sample, const TopTable& table,
                       const Arrangement& arrangement) {
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.emplace_back(column.title);
  Table out(titles);
  const RowOrder order = order_of(table, arrangement.sort);
  for (const Json::Value* row : rows_of(sample, table, order, arrangement.filter)) {
    if (arrangement.filter.empty() && is_idle(*row, table)) continue;
    std::vector<std::string> cells;
    for (const Column& column : table.columns) cells.push_back(cell_text(*row, column));
    out.add_row(std::move(cells));
    if (!table.idle.front().empty() && arrangement.filter.empty() &&
        out.row_count() == kPlainRows) {
      break;
    }
  }
  return out.empty() ? "" : "\n" + out.to_string();
}

}  // namespace

std::vector<Paragraph> summary_of(const Json::Value& sample) {
  std::vector<Paragraph> all{agent_facts(sample), read_and_put_facts(sample)};
  const auto add = [&all](Paragraph facts) {
    const bool trouble = facts.front().is_trouble;
    all.insert(trouble ? all.begin() + 1 : all.end(), std::move(facts));
  };
  if (field(sample, "tier").isObject()) add(tier_facts(field(sample, "tier")));
  if (field(sample, "cluster").isObject()) add(cluster_facts(sample));
  all.push_back(work_facts(sample));
  all.push_back(latency_facts(sample));
  all.push_back(loop_facts(sample));
  std::erase_if(all, [](const Paragraph& facts) { return facts.empty(); });
  return all;
}

std::string occupancy_bar(const Json::Value& row, std::size_t name_width, std::size_t width) {
  constexpr std::size_t kWidestBar = 40;
  constexpr std::size_t kLeastBar = 5;
  const std::uint64_t used = number_field(row, "used_bytes");
  const std::uint64_t pool = number_field(row, "pool_bytes");
  const double share =
      pool == 0 ? 0 : std::min(1.0, static_cast<double>(used) / static_cast<double>(pool));
  const std::string name =
      cut_to_width(printable(text_field(row, "name")), std::min(name_width, width));
  std::string out = name + std::string(name_width - std::min(name_width, display_width(name)), ' ');
  const std::string percent = fmt::format("{:3.0f}%", 100 * share);
  const std::string sizes = fmt::format("{} of {}", format_bytes(used), format_bytes(pool));
  // Name, two spaces, brackets, two spaces, percent, two spaces, sizes.
  const std::size_t rest = name_width + 2 + 2 + 2 + percent.size() + 2 + sizes.size();
  if (width >= rest + kLeastBar) {
    const std::size_t columns = std::min(kWidestBar, width - rest);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(columns) + 0.5);
    out += fmt::format("  [{}{}]", std::string(filled, '#'), std::string(columns - filled, '.'));
  }
  return cut_to_width(fmt::format("{}  {}  {}", out, percent, sizes), width);
}

std::string plain_text(const Json::Value& sample, const Arrangement& arrangement) {
  std::string out;
  for (const Paragraph& paragraph : summary_of(sample)) {
    std::string line;
    for (const Fact& fact : paragraph) line += (line.empty() ? "" : "; ") + fact.text;
    out += line + '\n';
  }
  for (const TopTable& table : kTopTables) out += table_text(sample, table, arrangement);
  return out;
}

}  // namespace mc::ctl::top
