// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/agent_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "libmc/http/metric_families.h"

namespace mc::agent {

namespace {

using http::MetricFamilies;
using http::MetricLabels;
using prometheus::MetricType;

constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;
constexpr auto kHistogram = MetricType::Histogram;

// A value of the status, and the metric that shows the value. Rows of one metric stand together;
// the first one has the help.
struct MetricRow {
  const char* path;  // members of the status, with dots between
  MetricType type;
  const char* name;
  const char* help;
  const char* label = "";  // "reason=timeout"
};

constexpr MetricRow kAgentRows[] = {
    {"uptime_s", kGauge, "mc_agent_uptime_seconds", "Time since the start of the agent"},
    {"sessions_open", kGauge, "mc_sessions", "Open sessions of clients"},
    {"session_reserved_bytes", kGauge, "mc_session_reserved_bytes",
     "Bytes of reservations that clients hold"},
    {"session_pins", kGauge, "mc_session_pins",
     "Pins of clients on objects; absent if the clients have more than 512 channels"},
};

// One sample for each namespace, with the label `namespace`.
constexpr MetricRow kNamespaceRows[] = {
    {"pool_bytes", kGauge, "mc_pool_target_bytes", "Size of the pool, as configured or resized"},
    {"reserved_bytes", kGauge, "mc_pool_reserved_bytes", "Memory that the pool has now"},
    {"used_bytes", kGauge, "mc_pool_used_bytes", "Bytes of the pool that are not free"},
    {"live_bytes", kGauge, "mc_object_bytes", "Bytes of objects"},
    {"objects", kGauge, "mc_objects", "Objects"},
    {"limbo", kGauge, "mc_limbo_objects", "Removed objects that readers still use"},
    {"limbo_bytes", kGauge, "mc_limbo_bytes", "Bytes of removed objects that readers still use"},
    {"reservations", kGauge, "mc_reservations", "Reservations that are not published"},
    {"index_bytes", kGauge, "mc_index_bytes", "Memory of the index"},
    {"hits", kCounter, "mc_local_reads_total", "Gets and views of clients in the pool of this host",
     "result=hit"},
    {"misses", kCounter, "mc_local_reads_total", "", "result=miss"},
    {"hit_bytes", kCounter, "mc_local_read_bytes_total", "Bytes of the objects found"},
    {"device_copies.worker_bytes", kCounter, "mc_client_device_bytes_total",
     "Bytes copied between devices and this host's memory for clients", "by=worker"},
    {"device_copies.own_bytes", kCounter, "mc_client_device_bytes_total", "", "by=client"},
    {"puts", kCounter, "mc_puts_total", "Objects put"},
    {"put_bytes", kCounter, "mc_put_bytes_total", "Bytes of objects put"},
    {"put_existing", kCounter, "mc_puts_existing_total", "Puts of keys that existed"},
    {"no_space", kCounter, "mc_puts_without_space_total", "Reservations that found no room"},
    {"evictions_for.room", kCounter, "mc_evictions_total", "Evicted objects", "reason=room"},
    {"evictions_for.capacity", kCounter, "mc_evictions_total", "", "reason=capacity"},
    {"evictions_for.shrink", kCounter, "mc_evictions_total", "", "reason=shrink"},
    {"evictions_for.group", kCounter, "mc_evictions_total", "", "reason=group"},
    {"evictions_for.operator", kCounter, "mc_evictions_total", "", "reason=operator"},
    {"evicted_bytes", kCounter, "mc_evicted_bytes_total", "Bytes of evicted objects"},
    {"removes", kCounter, "mc_removes_total", "Removed objects"},
    {"moves", kCounter, "mc_moved_objects_total", "Objects moved within the pool"},
    {"touches", kCounter, "mc_noted_reads_total",
     "Reads that clients have noted for the eviction policy; notes may be lost"},
    {"recovered", kGauge, "mc_recovered_objects", "Objects found at the start"},
    {"set_aside", kGauge, "mc_set_aside_objects", "Objects that were damaged at the start"},
    {"verified", kCounter, "mc_verified_objects_total", "Objects that the scrubber has compared"},
    {"corrupt", kCounter, "mc_corrupt_objects_total", "Objects with damaged bytes",
     "found_by=scrubber"},
    {"reported", kCounter, "mc_corrupt_objects_total", "", "found_by=client"},
};

constexpr MetricRow kClusterRows[] = {
    {"members", kGauge, "mc_cluster_members", "Agents of the cluster that this agent knows"},
    {"peers_lost", kGauge, "mc_cluster_peers_lost", "Of these, agents without an open link"},
    {"partitions", kGauge, "mc_cluster_partitions", "Partitions of the keys"},
    {"master_ready", kGauge, "mc_cluster_master_ready", "1: every partition has a master"},
    {"locations", kGauge, "mc_cached_locations", "Cached places of other hosts' objects"},
    {"counters.fetches", kCounter, "mc_remote_reads_total",
     "Objects read from other hosts, or looked for there, for gets and copies"},
    {"counters.fetches_shared", kCounter, "mc_remote_gets_joined_total",
     "Gets that joined a read under way"},
    {"counters.delivered", kCounter, "mc_remote_hits_total",
     "Gets that other hosts' objects served"},
    {"misses.nobody", kCounter, "mc_remote_misses_total",
     "Remote reads that ended without the object", "reason=no_holder"},
    {"misses.recovering", kCounter, "mc_remote_misses_total", "", "reason=master_recovering"},
    {"misses.master_away", kCounter, "mc_remote_misses_total", "", "reason=master_away"},
    {"misses.holders_failed", kCounter, "mc_remote_misses_total", "", "reason=holders_failed"},
    {"misses.late", kCounter, "mc_remote_misses_total", "", "reason=timeout"},
    {"misses.no_room", kCounter, "mc_remote_misses_total", "", "reason=no_room"},
    {"misses.corrupt", kCounter, "mc_remote_misses_total", "", "reason=corrupt"},
    {"misses.incomplete", kCounter, "mc_remote_misses_total", "", "reason=stripe_missing"},
    {"counters.located", kCounter, "mc_located_keys_total", "Keys that masters were asked for"},
    {"counters.location_hits", kCounter, "mc_location_hits_total", "Reads from a cached place"},
    {"counters.holder_hits", kCounter, "mc_holder_hits_total",
     "Reads of keys whose holders an exists had named"},
    {"counters.guesses", kCounter, "mc_guesses_total",
     "Holders asked before the master had answered"},
    {"counters.right_guesses", kCounter, "mc_right_guesses_total", "Guesses that were right"},
    {"counters.asked", kCounter, "mc_holder_questions_total", "Keys that holders were asked for"},
    {"counters.next_holders", kCounter, "mc_next_holders_total",
     "Reads that went to another holder after a failure"},
    {"counters.read_objects", kCounter, "mc_remote_read_objects_total",
     "Objects whose bytes came from other hosts"},
    {"counters.came_with_answer", kCounter, "mc_remote_read_in_answers_total",
     "Of these, objects whose bytes came with the holder's answer"},
    {"counters.read_bytes", kCounter, "mc_remote_read_bytes_total",
     "Bytes that came from other hosts"},
    {"counters.lent", kCounter, "mc_lent_objects_total",
     "Objects of other hosts that readers got without a copy in the pool"},
    {"counters.copies_kept", kCounter, "mc_copies_kept_total",
     "Copies of other hosts' objects that this host keeps"},
    {"counters.held_for_others", kCounter, "mc_objects_taken_total",
     "Objects that this host holds for clients of other hosts"},
    {"counters.asks_served", kCounter, "mc_asks_served_total", "Keys that other hosts asked for"},
    {"counters.served_bytes", kCounter, "mc_served_bytes_total", "Bytes sent to other hosts"},
    {"counters.staged_bytes", kCounter, "mc_staged_bytes_total",
     "Bytes that the transport copied once more than needed"},
    {"counters.resent_slices", kCounter, "mc_resent_slices_total",
     "Slices sent again after a lane failed"},
    {"counters.lanes_failed", kCounter, "mc_lanes_failed_total",
     "Lanes to other hosts that failed"},
    {"counters.announced", kCounter, "mc_announced_changes_total", "Changes told to masters"},
    {"counters.announcements_refused", kCounter, "mc_refused_changes_total",
     "Changes that masters refused"},
    {"counters.announcements_retried", kCounter, "mc_retried_changes_total",
     "Changes told to masters again"},
    {"counters.puts_unannounced", kCounter, "mc_unannounced_puts_total",
     "Puts that ended before a master knew the object"},
    {"elsewhere.asked", kCounter, "mc_placements_total", "Puts that another host should hold"},
    {"elsewhere.placed", kCounter, "mc_placed_objects_total", "Puts that another host holds"},
    {"elsewhere.placed_bytes", kCounter, "mc_placed_bytes_total", "Bytes of these puts"},
    {"elsewhere.existed", kCounter, "mc_placements_ended_total",
     "Puts and offers that ended without a new object on another host", "reason=existed"},
    {"elsewhere.refused", kCounter, "mc_placements_ended_total", "", "reason=refused"},
    {"elsewhere.lost", kCounter, "mc_placements_ended_total", "", "reason=host_lost"},
    {"elsewhere.late", kCounter, "mc_placements_ended_total", "", "reason=timeout"},
    {"elsewhere.nobody", kCounter, "mc_placements_ended_total", "", "reason=no_host"},
    {"elsewhere.master_away", kCounter, "mc_placements_ended_total", "", "reason=master_away"},
    {"stripes.puts", kCounter, "mc_striped_puts_total", "Objects put in stripes"},
    {"stripes.put_bytes", kCounter, "mc_striped_put_bytes_total", "Bytes of these objects"},
    {"stripes.puts_nobody", kCounter, "mc_striped_puts_failed_total", "Puts in stripes that failed",
     "reason=no_host"},
    {"stripes.puts_failed", kCounter, "mc_striped_puts_failed_total", "", "reason=failed"},
    {"stripes.gathered", kCounter, "mc_gathered_objects_total", "Objects read from stripes"},
    {"stripes.gathered_bytes", kCounter, "mc_gathered_bytes_total", "Bytes of these objects"},
    {"stripes.gathers_lacking", kCounter, "mc_gathers_failed_total",
     "Reads of objects in stripes that failed", "reason=stripe_missing"},
    {"stripes.gathers_late", kCounter, "mc_gathers_failed_total", "", "reason=timeout"},
    {"stripes.gathers_no_room", kCounter, "mc_gathers_failed_total", "", "reason=no_room"},
    {"stripes.gathers_failed", kCounter, "mc_gathers_failed_total", "", "reason=holders_failed"},
    {"stripes.gathers_corrupt", kCounter, "mc_gathers_failed_total", "", "reason=corrupt"},
    {"stripes.stripes_here", kGauge, "mc_stripes", "Stripes that this host holds"},
    {"stripes.moves", kCounter, "mc_moved_parts_total", "Parts of striped objects taken over"},
    {"stripes.moved_bytes", kCounter, "mc_moved_bytes_total", "Bytes of these parts"},
};

constexpr MetricRow kTierRows[] = {
    {"objects", kGauge, "mc_tier_objects", "Objects on the disks of the tier"},
    {"memory_bytes", kGauge, "mc_tier_memory_bytes", "Memory for the index of the tier"},
    {"recovering", kGauge, "mc_tier_recovering", "1: the disks are being read after a start"},
    {"demoted", kCounter, "mc_tier_demotions_total",
     "Evicted objects that are on a disk since then"},
    {"demoted_bytes", kCounter, "mc_tier_demoted_bytes_total", "Bytes of these objects"},
    {"demoting_bytes", kGauge, "mc_tier_demoting_bytes",
     "Bytes of evicted objects on their way to a disk"},
    {"demoted_before", kCounter, "mc_tier_demoted_before_total",
     "Evicted objects that a disk had already"},
    {"lost_busy", kCounter, "mc_tier_not_demoted_total",
     "Evicted objects that no disk has, by the reason", "reason=busy"},
    {"lost_endurance", kCounter, "mc_tier_not_demoted_total", "", "reason=endurance"},
    {"lost_too_large", kCounter, "mc_tier_not_demoted_total", "", "reason=too_large"},
    {"lost_stripes", kCounter, "mc_tier_not_demoted_total", "", "reason=stripes"},
    {"lost_no_disk", kCounter, "mc_tier_not_demoted_total", "", "reason=no_disk"},
    {"lost_failed", kCounter, "mc_tier_not_demoted_total", "", "reason=failed"},
    {"read", kCounter, "mc_tier_served_objects_total", "Objects read from disks for gets"},
    {"read_bytes", kCounter, "mc_tier_served_bytes_total", "Bytes of these objects"},
    {"promoted", kCounter, "mc_tier_promotions_total",
     "Of these objects, those that came back into the pool"},
    {"served_on_the_way", kCounter, "mc_tier_served_on_the_way_total",
     "Evicted objects served before they were on a disk"},
    {"misses", kCounter, "mc_tier_misses_total",
     "Gets of objects that neither pool nor disks have"},
    {"reads_not_ready", kCounter, "mc_tier_read_failures_total",
     "Gets that ended without an answer from the disks, by the reason", "reason=starting"},
    {"reads_damaged", kCounter, "mc_tier_read_failures_total", "", "reason=damaged"},
    {"reads_failed", kCounter, "mc_tier_read_failures_total", "", "reason=disk"},
    {"reads_no_room", kCounter, "mc_tier_read_failures_total", "", "reason=no_room"},
};

// One sample for each disk, with the label `disk`.
constexpr MetricRow kDiskRows[] = {
    {"serving", kGauge, "mc_tier_disk_serving",
     "1: the disk serves; 0: the disk is refused, has failed, or is being read"},
    {"bytes", kGauge, "mc_tier_disk_bytes", "Size of the disk in the tier"},
    {"live_bytes", kGauge, "mc_tier_live_bytes", "Bytes of records that are not outdated"},
    {"free_segments", kGauge, "mc_tier_free_segments", "Segments without records"},
    {"puts", kCounter, "mc_tier_puts_total", "Objects written"},
    {"put_bytes", kCounter, "mc_tier_put_bytes_total", "Bytes of these objects"},
    {"written_bytes", kCounter, "mc_tier_written_bytes_total",
     "Bytes written to the disk, with headers and copies"},
    {"copied_bytes", kCounter, "mc_tier_copied_bytes_total",
     "Of these, records that the cleaner has copied"},
    {"reads", kCounter, "mc_tier_reads_total", "Objects read"},
    {"removals", kCounter, "mc_tier_removals_total", "Removals written"},
    {"dropped", kCounter, "mc_tier_dropped_objects_total", "Objects that left to make room"},
    {"damaged", kCounter, "mc_tier_damaged_objects_total",
     "Reads that found other bytes than those written"},
    {"failed", kCounter, "mc_tier_failed_reads_total", "Reads that the disk refused"},
};

constexpr const char* kRequestsName = "mc_requests_total";
constexpr const char* kRequestsHelp =
    "Requests of clients that have ended, by operation and status";
constexpr const char* kWaitedName = "mc_request_wait_seconds";
constexpr const char* kWaitedHelp =
    "Durations of requests that have waited for room or for the cluster";
constexpr const char* kStagesName = "mc_remote_get_seconds";
constexpr const char* kStagesHelp =
    "Durations of gets from other hosts by stage: the master's answer (locate), a holder's answer "
    "(ask), the bytes (read), and all together (whole)";
constexpr MetricRow kGpuRows[] = {
    {"clients", kGauge, "mc_gpu_clients", "Clients of the worker of this GPU"},
    {"allocations", kGauge, "mc_gpu_allocations",
     "Allocations of clients that the worker has open"},
    {"allocations_opened", kCounter, "mc_gpu_allocations_opened_total",
     "Allocations that the worker has opened"},
    {"pinned_bytes", kGauge, "mc_gpu_pinned_bytes", "Bytes of pools that the worker has pinned"},
    {"requests", kCounter, "mc_gpu_requests_total", "Requests for copies"},
    {"bytes_to_device", kCounter, "mc_gpu_copied_bytes_total",
     "Bytes copied between this GPU and host memory", "direction=to_gpu"},
    {"bytes_from_device", kCounter, "mc_gpu_copied_bytes_total", "", "direction=from_gpu"},
};
constexpr const char* kTierReadName = "mc_tier_read_seconds";
constexpr const char* kTierReadHelp = "Durations of gets of objects on disks";
constexpr const char* kRailsName = "mc_rails";
constexpr const char* kRailsHelp =
    "Lanes to all peers by state: up, down, or idle (closed until the next use)";
constexpr const char* kBusyName = "mc_loop_busy_seconds";
constexpr const char* kBusyHelp =
    "Durations for which the agent's loop did not look at its other work";
constexpr const char* kLongestName = "mc_loop_longest_busy_seconds";
constexpr const char* kLongestHelp = "The longest of these durations since the start";
constexpr const char* kInfoName = "mc_agent_info";
constexpr const char* kInfoHelp = "1. The labels name the version and the node";

// The member at the path, or null.
const Json::Value* member(const Json::Value& object, std::string_view path) {
  const Json::Value* at = &object;
  while (at != nullptr && !path.empty()) {
    const std::string_view name = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    at = at->isObject() ? at->find(name.data(), name.data() + name.size()) : nullptr;
  }
  return at;
}

std::optional<double> number(const Json::Value& object, std::string_view path) {
  const Json::Value* const value = member(object, path);
  if (value == nullptr) return std::nullopt;
  if (value->isBool()) return value->asBool() ? 1 : 0;
  return value->isNumeric() ? std::optional(value->asDouble()) : std::nullopt;
}

std::string text(const Json::Value& object, std::string_view name) {
  const Json::Value* const value = member(object, name);
  return value != nullptr && value->isConvertibleTo(Json::stringValue) ? value->asString() : "";
}

// The label of a row, behind the labels of its scope.
MetricLabels labels_of(const MetricRow& row, MetricLabels labels) {
  const std::string_view label = row.label;
  if (const std::size_t equals = label.find('='); equals != std::string_view::npos) {
    labels.push_back({std::string(label.substr(0, equals)), std::string(label.substr(equals + 1))});
  }
  return labels;
}

struct Scope {
  const Json::Value& values;
  MetricLabels labels;
};

// The rows, with a sample for each scope that has the value.
void add_rows(MetricFamilies& out, std::span<const MetricRow> rows, std::span<const Scope> scopes) {
  std::string_view begun;
  for (const MetricRow& row : rows) {
    for (const Scope& scope : scopes) {
      const auto value = number(scope.values, row.path);
      if (!value) continue;
      if (begun != row.name) out.begin(row.type, row.name, row.help);
      begun = row.name;
      out.sample(labels_of(row, scope.labels), *value);
    }
  }
}

// counts: by powers of two of a microsecond (DurationCounts).
void add_durations(MetricFamilies& out, MetricLabels labels, const Json::Value* durations) {
  const Json::Value* const buckets = durations != nullptr ? member(*durations, "counts") : nullptr;
  const auto sum_ns = durations != nullptr ? number(*durations, "sum_ns") : std::nullopt;
  if (buckets == nullptr || !buckets->isArray() || !sum_ns) return;
  std::vector<double> bounds;
  std::vector<std::uint64_t> counts;
  for (const Json::Value& count : *buckets) {
    bounds.push_back(std::ldexp(1e-6, static_cast<int>(bounds.size())));
    counts.push_back(count.isUInt64() ? count.asUInt64() : 0);
  }
  if (bounds.empty()) return;
  bounds.pop_back();  // the last bucket has no bound
  out.histogram(std::move(labels), bounds, counts, *sum_ns / 1e9);
}

void add_requests(MetricFamilies& out, const Json::Value& status) {
  const Json::Value* const requests = member(status, "requests");
  if (requests == nullptr || !requests->isObject()) return;
  out.begin(kCounter, kRequestsName, kRequestsHelp);
  for (const std::string& op : requests->getMemberNames()) {
    const Json::Value* const ended = member(*requests, op + ".ended");
    if (ended == nullptr || !ended->isObject()) continue;
    for (const std::string& code : ended->getMemberNames()) {
      if (const auto count = number(*ended, code)) {
        out.sample({{"op", op}, {"status", code}}, *count);
      }
    }
  }
  out.begin(kHistogram, kWaitedName, kWaitedHelp);
  for (const std::string& op : requests->getMemberNames()) {
    add_durations(out, {{"op", op}}, member(*requests, op + ".waited"));
  }
}

void add_stages(MetricFamilies& out, const Json::Value& status) {
  const Json::Value* const stages = member(status, "cluster.stages");
  if (stages == nullptr || !stages->isObject()) return;
  out.begin(kHistogram, kStagesName, kStagesHelp);
  for (const std::string& stage : stages->getMemberNames()) {
    add_durations(out, {{"stage", stage}}, member(*stages, stage));
  }
}

void add_rails(MetricFamilies& out, const Json::Value& status) {
  const Json::Value* const rails = member(status, "cluster.rails");
  if (rails == nullptr || !rails->isObject()) return;
  out.begin(kGauge, kRailsName, kRailsHelp);
  for (const std::string& transport : rails->getMemberNames()) {
    const Json::Value* const states = member(*rails, transport);
    if (!states->isObject()) continue;
    for (const std::string& state : states->getMemberNames()) {
      if (const auto count = number(*states, state)) {
        out.sample({{"transport", transport}, {"state", state}}, *count);
      }
    }
  }
}

void add_loop(MetricFamilies& out, const Json::Value& status) {
  const Json::Value* const loop = member(status, "loop");
  if (loop == nullptr || !loop->isObject()) return;
  out.begin(kHistogram, kBusyName, kBusyHelp);
  for (const std::string& cause : loop->getMemberNames()) {
    add_durations(out, {{"cause", cause}}, member(*loop, cause + ".busy"));
  }
  out.begin(kGauge, kLongestName, kLongestHelp);
  for (const std::string& cause : loop->getMemberNames()) {
    if (const auto ns = number(*loop, cause + ".longest_ns")) {
      out.sample({{"cause", cause}}, *ns / 1e9);
    }
  }
}

void describe(std::string& out, std::string_view name, MetricType type, const std::string& labels,
              std::string_view help) {
  out += fmt::format("| `{}` | {} | {} | {} |\n", name,
                     type == kCounter ? "counter"
                     : type == kGauge ? "gauge"
                                      : "histogram",
                     labels, help);
}

void describe(std::string& out, std::span<const MetricRow> rows, const std::string& scope) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (*rows[i].help == '\0') continue;
    std::string labels = scope;
    std::string_view label = rows[i].label;
    label = label.substr(0, label.find('='));
    if (!label.empty()) labels += fmt::format("{}`{}`", labels.empty() ? "" : ", ", label);
    describe(out, rows[i].name, rows[i].type, labels, rows[i].help);
  }
}

}  // namespace

std::string metrics_text(const Json::Value& status) {
  MetricFamilies out;
  out.begin(kGauge, kInfoName, kInfoHelp);
  out.sample({{"version", text(status, "version")}, {"node", text(status, "node_id")}}, 1);
  const Scope whole[] = {{status, {}}};
  add_rows(out, kAgentRows, whole);
  add_requests(out, status);
  add_stages(out, status);
  add_rails(out, status);
  add_loop(out, status);
  std::vector<Scope> namespaces;
  if (const Json::Value* const all = member(status, "namespaces");
      all != nullptr && all->isArray()) {
    for (const Json::Value& each : *all) {
      namespaces.push_back({each, {{"namespace", text(each, "name")}}});
    }
  }
  add_rows(out, kNamespaceRows, namespaces);
  if (const Json::Value* const cluster = member(status, "cluster")) {
    const Scope scope[] = {{*cluster, {}}};
    add_rows(out, kClusterRows, scope);
  }
  if (const Json::Value* const tier = member(status, "tier")) {
    const Scope scope[] = {{*tier, {}}};
    add_rows(out, kTierRows, scope);
    out.begin(kHistogram, kTierReadName, kTierReadHelp);
    add_durations(out, {}, member(*tier, "read_durations"));
    std::vector<Scope> disks;
    if (const Json::Value* const all = member(*tier, "disks"); all != nullptr && all->isArray()) {
      for (const Json::Value& each : *all) disks.push_back({each, {{"disk", text(each, "path")}}});
    }
    add_rows(out, kDiskRows, disks);
  }
  std::vector<Scope> gpus;
  if (const Json::Value* const all = member(status, "gpu_workers");
      all != nullptr && all->isArray()) {
    for (const Json::Value& each : *all) gpus.push_back({each, {{"gpu", text(each, "gpu")}}});
  }
  add_rows(out, kGpuRows, gpus);
  return out.text();
}

std::string metrics_table() {
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  describe(out, kInfoName, kGauge, "`version`, `node`", kInfoHelp);
  describe(out, kAgentRows, "");
  describe(out, kRequestsName, kCounter, "`op`, `status`", kRequestsHelp);
  describe(out, kWaitedName, kHistogram, "`op`", kWaitedHelp);
  describe(out, kStagesName, kHistogram, "`stage`", kStagesHelp);
  describe(out, kRailsName, kGauge, "`transport`, `state`", kRailsHelp);
  describe(out, kBusyName, kHistogram, "`cause`", kBusyHelp);
  describe(out, kLongestName, kGauge, "`cause`", kLongestHelp);
  describe(out, kNamespaceRows, "`namespace`");
  describe(out, kClusterRows, "");
  describe(out, kTierRows, "");
  describe(out, kTierReadName, kHistogram, "", kTierReadHelp);
  describe(out, kDiskRows, "`disk`");
  describe(out, kGpuRows, "`gpu`");
  return out;
}

}  // namespace mc::agent
