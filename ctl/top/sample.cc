// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "ctl/text/agent_view.h"
#include "ctl/text/json.h"
#include "libmc/client/admin.h"

namespace mc::ctl::top {
namespace {

using Counts = std::vector<std::uint64_t>;

// The time between two looks. Without an earlier look no rate is known.
struct Interval {
  double elapsed_s;

  Json::Value per_s(std::uint64_t count) const {
    if (elapsed_s <= 0) return {};
    return u64(static_cast<std::uint64_t>(static_cast<double>(count) / elapsed_s + 0.5));
  }
  // Null: an earlier value is missing, or the counter began at zero meanwhile.
  Json::Value rate(const Json::Value& before, const Json::Value& now, std::string_view name) const {
    const std::uint64_t old_count = number_field(before, name);
    const std::uint64_t new_count = number_field(now, name);
    if (before.isNull() || new_count < old_count) return {};
    return per_s(new_count - old_count);
  }
};

// The entry of the list that has the same text in this field, or null.
const Json::Value& same_entry(const Json::Value& list, const Json::Value& entry,
                              std::string_view name) {
  static const Json::Value kNull;
  for (const Json::Value& other : list) {
    if (text_field(other, name) == text_field(entry, name)) return other;
  }
  return kNull;
}

void copy_fields(Json::Value& to, const Json::Value& from,
                 std::initializer_list<const char*> names) {
  for (const char* name : names) to[name] = field(from, name);
}

// Null if the whole is zero.
Json::Value share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::uint64_t growth(const Json::Value& before, const Json::Value& now, std::string_view name) {
  const std::uint64_t old_count = number_field(before, name);
  const std::uint64_t new_count = number_field(now, name);
  return before.isNull() || new_count < old_count ? 0 : new_count - old_count;
}

// Gets and views of this host's pool, which the clients count in shared memory.
struct Reads {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;

  Json::Value hit_ratio() const { return share(hits, hits + misses); }
};

Reads reads_between(const Json::Value& before, const Json::Value& now) {
  return {growth(before, now, "hits"), growth(before, now, "misses")};
}

Json::Value namespaces_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  Json::Value list(Json::arrayValue);
  for (const Json::Value& entry : array_field(now.status, "namespaces")) {
    const Json::Value& old = same_entry(array_field(before.status, "namespaces"), entry, "name");
    Json::Value item;
    copy_fields(item, entry, {"name", "pool_bytes", "used_bytes", "objects"});
    item["used_share"] =
        share(number_field(entry, "used_bytes"), number_field(entry, "pool_bytes"));
    for (const char* name :
         {"hits", "misses", "puts", "put_bytes", "evictions", "removes", "no_space"}) {
      item[std::string(name) + "_per_s"] = interval.rate(old, entry, name);
    }
    item["get_bytes_per_s"] = interval.rate(old, entry, "hit_bytes");
    const Reads reads = reads_between(old, entry);
    item["gets_per_s"] = old.isNull() ? Json::Value() : interval.per_s(reads.hits + reads.misses);
    item["hit_ratio"] = reads.hit_ratio();
    list.append(std::move(item));
  }
  return list;
}

Json::Value sessions_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  Json::Value list(Json::arrayValue);
  for (const Json::Value& entry : array_field(now.status, "sessions")) {
    const Json::Value& old = same_entry(array_field(before.status, "sessions"), entry, "id");
    Json::Value item;
    copy_fields(item, entry,
                {"id", "pid", "uid", "label", "namespace", "channels", "pinned_objects",
                 "reserved_bytes", "staging_bytes", "age_s"});
    item["state"] = flag_field(entry, "suspected") ? "suspected" : "alive";
    item["requests_per_s"] = interval.rate(old, entry, "requests");
    list.append(std::move(item));
  }
  return list;
}

Json::Value rails_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  Json::Value list(Json::arrayValue);
  for (const Json::Value& peer : array_field(now.rails, "peers")) {
    const Json::Value& old_peer = same_entry(array_field(before.rails, "peers"), peer, "node");
    const std::string address = text_field(peer, "address");
    for (const Json::Value& rail : array_field(peer, "rails")) {
      const Json::Value& old = same_entry(array_field(old_peer, "rails"), rail, "name");
      Json::Value item;
      item["peer"] = address.empty() ? "node " + text_field(peer, "node") : address;
      copy_fields(item, peer, {"node", "reachable"});
      copy_fields(item, rail,
                  {"transport", "name", "health", "bandwidth_bytes_per_s", "latency_ns",
                   "outstanding_bytes", "window_bytes", "failures", "taken_back_slices"});
      // A latency of zero means "not measured".
      if (number_field(rail, "latency_ns") == 0) item["latency_ns"] = Json::Value();
      item["load"] =
          share(number_field(rail, "outstanding_bytes"), number_field(rail, "window_bytes"));
      item["bytes_per_s"] = interval.rate(old, rail, "done_bytes");
      item["failures_per_s"] = interval.rate(old, rail, "failures");
      list.append(std::move(item));
    }
  }
  return list;
}

// A histogram of the agent, {"counts": […]}. Agents have 26 buckets now.
Counts counts_of(const Json::Value& histogram) {
  constexpr std::size_t kMostBuckets = 40;
  Counts counts;
  for (const Json::Value& count : array_field(histogram, "counts")) {
    if (counts.size() < kMostBuckets) counts.push_back(count.isUInt64() ? count.asUInt64() : 0);
  }
  return counts;
}

// The durations of the interval.
Counts counts_between(const Json::Value& before, const Json::Value& now) {
  Counts counts = counts_of(now);
  Counts old = counts_of(before);
  old.resize(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = counts[i] < old[i] ? 0 : counts[i] - old[i];
  }
  return counts;
}

std::uint64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

Json::Value latencies_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  Json::Value all(Json::objectValue);
  if (interval.elapsed_s <= 0) return all;
  const Json::Value& requests = field(now.status, "requests");
  if (!requests.isObject()) return all;
  for (const std::string& name : requests.getMemberNames()) {
    const Json::Value& old = field(field(before.status, "requests"), name);
    const Counts counts = counts_between(field(old, "waited"), field(requests[name], "waited"));
    if (total(counts) == 0) continue;
    Json::Value& of = all[name];
    of["per_s"] = interval.per_s(total(counts));
    of["p50_below_ns"] = quantile_bound_ns(counts, 0.5);
    of["p99_below_ns"] = quantile_bound_ns(counts, 0.99);
  }
  return all;
}

// The longest turns of the agent's loop, each with its cause: of the interval, and ever.
Json::Value loop_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  Json::Value longest;
  const Json::Value& loop = field(now.status, "loop");
  if (!loop.isObject()) return longest;
  std::size_t longest_bucket = 0;
  for (const std::string& cause : loop.getMemberNames()) {
    const std::uint64_t ever_ns = number_field(loop[cause], "longest_ns");
    if (ever_ns > number_field(longest, "longest_ever_ns")) {
      longest["longest_ever_ns"] = u64(ever_ns);
      longest["cause_ever"] = cause;
    }
    if (interval.elapsed_s <= 0) continue;
    const Json::Value& old = field(field(before.status, "loop"), cause);
    const Counts counts = counts_between(field(old, "busy"), field(loop[cause], "busy"));
    const auto last = std::find_if(counts.rbegin(), counts.rend(),
                                   [](std::uint64_t count) { return count != 0; });
    const auto bucket = static_cast<std::size_t>(counts.rend() - last);
    if (bucket <= longest_bucket) continue;
    longest_bucket = bucket;
    longest["longest_below_ns"] = quantile_bound_ns(counts, 1);
    longest["cause"] = cause;
  }
  return longest;
}

std::uint64_t requests_ended(const Json::Value& status) {
  std::uint64_t count = 0;
  for (const Json::Value& operation : field(status, "requests")) {
    for (const Json::Value& ended : field(operation, "ended")) {
      if (ended.isUInt64()) count += ended.asUInt64();
    }
  }
  return count;
}

// Null if no entry of the list knows the rate.
Json::Value sum_of(const Json::Value& list, std::string_view name) {
  Json::Value sum;
  for (const Json::Value& item : list) {
    if (!field(item, name).isNull()) sum = u64(sum.asUInt64() + number_field(item, name));
  }
  return sum;
}

// Null: the agent has no tier.
Json::Value tier_of(const AgentLook& before, const AgentLook& now, Interval interval) {
  const Json::Value& tier = field(now.status, "tier");
  if (!tier.isObject()) return {};
  const Json::Value& old = field(before.status, "tier");
  Json::Value out;
  copy_fields(out, tier, {"objects", "recovering"});
  Json::Value in_use(Json::arrayValue);
  for (const Json::Value& disk : array_field(tier, "disks")) {
    if (flag_field(disk, "serving")) in_use.append(disk);
  }
  out["live_bytes"] = sum_of(in_use, "live_bytes");
  out["bytes"] = sum_of(in_use, "bytes");
  out["demoted_bytes_per_s"] = interval.rate(old, tier, "demoted_bytes");
  out["read_bytes_per_s"] = interval.rate(old, tier, "read_bytes");
  out["reads_per_s"] = interval.rate(old, tier, "read");
  const std::uint64_t lost = evicted_without_disk(tier);
  const std::uint64_t old_lost = evicted_without_disk(old);
  out["lost_per_s"] =
      old.isNull() || lost < old_lost ? Json::Value() : interval.per_s(lost - old_lost);
  out["disks"] = Json::Value(Json::arrayValue);
  for (const Json::Value& disk : array_field(tier, "disks")) {
    Json::Value item;
    copy_fields(item, disk, {"path", "state", "problem"});
    out["disks"].append(std::move(item));
  }
  return out;
}

Json::Value rates_of(const Json::Value& sample, const AgentLook& before, const AgentLook& now,
                     Interval interval) {
  Json::Value rates(Json::objectValue);
  for (const char* name :
       {"gets_per_s", "hits_per_s", "misses_per_s", "get_bytes_per_s", "puts_per_s",
        "put_bytes_per_s", "evictions_per_s", "removes_per_s", "no_space_per_s"}) {
    rates[name] = sum_of(sample["namespaces"], name);
  }
  const std::uint64_t old_count = requests_ended(before.status);
  const std::uint64_t new_count = requests_ended(now.status);
  rates["requests_per_s"] =
      new_count < old_count ? Json::Value() : interval.per_s(new_count - old_count);
  if (now.rails.isNull()) return rates;
  const auto counters = [](const AgentLook& look) -> const Json::Value& {
    return field(field(look.status, "cluster"), "counters");
  };
  const auto rate = [&](std::string_view name) {
    return interval.rate(counters(before), counters(now), name);
  };
  rates["fetched_bytes_per_s"] = rate("read_bytes");
  rates["served_bytes_per_s"] = rate("served_bytes");
  rates["remote_gets_per_s"] = rate("delivered");
  return rates;
}

Json::Value hit_ratio_of(const AgentLook& before, const AgentLook& now) {
  Reads sum;
  for (const Json::Value& entry : array_field(now.status, "namespaces")) {
    const Reads reads =
        reads_between(same_entry(array_field(before.status, "namespaces"), entry, "name"), entry);
    sum.hits += reads.hits;
    sum.misses += reads.misses;
  }
  return sum.hit_ratio();
}

}  // namespace

Json::Value quantile_bound_ns(const std::vector<std::uint64_t>& counts, double quantile) {
  const auto wanted =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(total(counts)) * quantile));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket + 1 < counts.size(); ++bucket) {
    seen += counts[bucket];
    if (seen > 0 && seen >= wanted) return u64(std::uint64_t{1000} << bucket);
  }
  return {};
}

Result<AgentLook> look_at_agent(const std::string& socket_path, std::uint64_t timeout_ns) {
  AgentLook look;
  Json::Value request;
  request["verb"] = "status";
  auto status = client::admin_call(socket_path, request, timeout_ns);
  if (!status) return fail(status.error());
  look.status = std::move(*status);
  if (field(look.status, "cluster").isNull()) return look;
  request["verb"] = "rails";
  auto rails = client::admin_call(socket_path, request, timeout_ns);
  if (!rails) return fail(rails.error());
  look.rails = std::move(*rails);
  return look;
}

bool is_same_agent(const AgentLook& before, const AgentLook& now) {
  for (const char* name : {"pid", "incarnation"}) {
    if (field(before.status, name) != field(now.status, name)) return false;
  }
  return number_field(before.status, "uptime_s") <= number_field(now.status, "uptime_s");
}

Json::Value sample_of(const AgentLook& before, const AgentLook& now, double elapsed_s) {
  const Interval interval{elapsed_s};
  Json::Value sample;
  sample["elapsed_s"] = elapsed_s;
  copy_fields(sample, now.status, {"version", "pid", "uptime_s", "sessions_open"});
  sample["namespaces"] = namespaces_of(before, now, interval);
  sample["sessions"] = sessions_of(before, now, interval);
  if (!now.rails.isNull()) {
    sample["rails"] = rails_of(before, now, interval);
    copy_fields(sample["cluster"], field(now.status, "cluster"),
                {"id", "master_ready", "master_trouble", "members", "peers_lost"});
  }
  if (Json::Value tier = tier_of(before, now, interval); !tier.isNull()) sample["tier"] = tier;
  sample["hit_ratio"] = hit_ratio_of(before, now);
  sample["rates"] = rates_of(sample, before, now, interval);
  sample["latencies"] = latencies_of(before, now, interval);
  sample["loop"] = loop_of(before, now, interval);
  return sample;
}

}  // namespace mc::ctl::top
