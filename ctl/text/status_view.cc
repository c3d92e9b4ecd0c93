// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/agent_view.h"

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

std::string count_field(const Json::Value& object, std::string_view name) {
  return format_count(number_field(object, name));
}

std::string agent_lines(const Json::Value& status) {
  const auto up_ns = static_cast<double>(number_field(status, "uptime_s")) * 1e9;
  return fmt::format("agent {}, pid {}, {}, up {}\nnode {}, incarnation {}\n",
                     printable(text_field(status, "version")), number_field(status, "pid"),
                     flag_field(status, "ready") ? "ready" : "not ready yet: still recovering",
                     format_duration_ns(up_ns), printable(text_field(status, "node_id")),
                     printable(text_field(status, "incarnation")));
}

const Json::Value& namespace_named(const Json::Value& status, const std::string& name) {
  static const Json::Value kNull;
  for (const Json::Value& entry : array_field(status, "namespaces")) {
    if (text_field(entry, "name") == name) return entry;
  }
  return kNull;
}

// The rate of a counter. After a restart, the agent counts from zero again.
std::string rate(const Json::Value& now, const Json::Value& before, std::string_view name,
                 double elapsed_s) {
  const std::uint64_t new_count = number_field(now, name);
  const std::uint64_t old_count = number_field(before, name);
  if (before.isNull() || new_count < old_count || elapsed_s <= 0) return "-";
  return format_count(
      static_cast<std::uint64_t>(static_cast<double>(new_count - old_count) / elapsed_s + 0.5));
}

std::string used_share(const Json::Value& entry) {
  const std::uint64_t pool_bytes = number_field(entry, "pool_bytes");
  if (pool_bytes == 0) return "-";
  return fmt::format("{:.0f}%", 100 * static_cast<double>(number_field(entry, "used_bytes")) /
                                    static_cast<double>(pool_bytes));
}

std::string namespace_table(const Json::Value& status, const Json::Value& previous,
                            double elapsed_s) {
  const bool rates = !previous.isNull();
  std::vector<std::string> header{"NAMESPACE", "MODE", "POLICY",  "POOL",    "USED",     "USED%",
                                  "OBJECTS",   "PUTS", "EVICTED", "REMOVED", "NO SPACE", "CORRUPT"};
  if (rates) header.insert(header.end(), {"PUTS/s", "EVICTED/s"});
  Table table(header);
  for (const Json::Value& entry : array_field(status, "namespaces")) {
    const std::string name = text_field(entry, "name");
    std::vector<std::string> row{name,
                                 text_field(entry, "mode"),
                                 text_field(entry, "policy"),
                                 bytes_field(entry, "pool_bytes"),
                                 bytes_field(entry, "used_bytes"),
                                 used_share(entry),
                                 count_field(entry, "objects"),
                                 count_field(entry, "puts"),
                                 count_field(entry, "evictions"),
                                 count_field(entry, "removes"),
                                 count_field(entry, "no_space"),
                                 count_field(entry, "corrupt")};
    if (rates) {
      const Json::Value& before = namespace_named(previous, name);
      row.push_back(rate(entry, before, "puts", elapsed_s));
      row.push_back(rate(entry, before, "evictions", elapsed_s));
    }
    table.add_row(std::move(row));
  }
  return table.to_string();
}

// Facts that the table shows only as a sum or not at all; zeros are left out.
std::string namespace_notes(const Json::Value& status) {
  std::string out;
  for (const Json::Value& entry : array_field(status, "namespaces")) {
    std::string notes;
    const auto add = [&](std::string_view name, std::string_view text, bool bytes) {
      const std::uint64_t value = number_field(entry, name);
      if (value == 0) return;
      notes += fmt::format("{}{} {}", notes.empty() ? "" : ", ",
                           bytes ? format_bytes(value) : format_count(value), text);
    };
    add("limbo_bytes", "waiting for readers", true);
    add("reservations", "reservations", false);
    add("recovered", "recovered at start", false);
    add("set_aside", "set aside", false);
    if (!notes.empty())
      out += fmt::format("  {}: {}\n", printable(text_field(entry, "name")), notes);
  }
  return out;
}

// The disks of the tier; empty without a tier.
std::string tier_table(const Json::Value& status) {
  if (!status.isMember("tier")) return "";
  const Json::Value& tier = status["tier"];
  Table table(
      {"DISK", "STATE", "SIZE", "LIVE", "PUTS", "READS", "DROPPED", "WRITTEN/PUT", "DAMAGED"});
  std::string problems;
  for (const Json::Value& disk : array_field(tier, "disks")) {
    const auto put_bytes = static_cast<double>(number_field(disk, "put_bytes"));
    const auto written = static_cast<double>(number_field(disk, "written_bytes"));
    table.add_row({text_field(disk, "path"), text_field(disk, "state"), bytes_field(disk, "bytes"),
                   bytes_field(disk, "live_bytes"), count_field(disk, "puts"),
                   count_field(disk, "reads"), count_field(disk, "dropped"),
                   put_bytes > 0 ? fmt::format("{:.2f}", written / put_bytes) : "-",
                   count_field(disk, "damaged")});
    if (disk.isMember("problem")) problems += "  " + printable(text_field(disk, "problem")) + '\n';
    if (disk.isMember("emptied")) {
      problems +=
          fmt::format("  {}: began without its objects: {}\n", printable(text_field(disk, "path")),
                      printable(text_field(disk, "emptied")));
    }
  }
  return fmt::format(
      "{}  {} objects on disks; {} demoted, {} evicted without a disk; {} read, {} promoted\n{}\n",
      table.to_string(), count_field(tier, "objects"), count_field(tier, "demoted"),
      format_count(evicted_without_disk(tier)), count_field(tier, "read"),
      count_field(tier, "promoted"), problems);
}

// The workers of GPUs; empty without one.
std::string gpu_table(const Json::Value& status) {
  const Json::Value& workers = array_field(status, "gpu_workers");
  if (workers.empty()) return "";
  Table table(
      {"GPU", "PID", "CLIENTS", "ALLOCATIONS", "POOL PINNED", "REQUESTS", "TO GPU", "FROM GPU"});
  for (const Json::Value& worker : workers) {
    table.add_row({text_field(worker, "gpu"), text_field(worker, "pid"),
                   count_field(worker, "clients"), count_field(worker, "allocations"),
                   bytes_field(worker, "pinned_bytes"), count_field(worker, "requests"),
                   bytes_field(worker, "bytes_to_device"),
                   bytes_field(worker, "bytes_from_device")});
  }
  return table.to_string() + '\n';
}

std::string session_table(const Json::Value& status) {
  Table table({"SESSION", "PID", "UID", "LABEL", "NAMESPACE", "CHANNELS", "RESERVED", "PINNED",
               "REQUESTS", "AGE", "STATE"});
  for (const Json::Value& entry : array_field(status, "sessions")) {
    const auto age_ns = static_cast<double>(number_field(entry, "age_s")) * 1e9;
    table.add_row({text_field(entry, "id"), text_field(entry, "pid"), text_field(entry, "uid"),
                   text_field(entry, "label"), text_field(entry, "namespace"),
                   count_field(entry, "channels"), bytes_field(entry, "reserved_bytes"),
                   entry.isMember("pinned_objects") ? count_field(entry, "pinned_objects") : "-",
                   count_field(entry, "requests"), format_duration_ns(age_ns),
                   flag_field(entry, "suspected") ? "suspected" : "alive"});
  }
  if (table.empty()) return "no sessions\n";
  const std::uint64_t open = number_field(status, "sessions_open");
  const std::uint64_t listed = array_field(status, "sessions").size();
  if (open <= listed) return table.to_string();
  return table.to_string() + fmt::format("and {} more\n", format_count(open - listed));
}

void flatten(const Json::Value& value, const std::string& name, Table& table) {
  if (value.isObject()) {
    for (const std::string& member : value.getMemberNames()) {
      flatten(value[member], name.empty() ? member : name + '.' + member, table);
    }
  } else if (value.isArray()) {
    for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
      flatten(value[i], fmt::format("{}[{}]", name, i), table);
    }
  } else if (value.isUInt64()) {
    table.add_row({name, format_count(value.asUInt64())});
  } else {
    table.add_row({name, value.isConvertibleTo(Json::stringValue) ? value.asString() : ""});
  }
}

}  // namespace

std::uint64_t evicted_without_disk(const Json::Value& tier) {
  std::uint64_t objects = 0;
  for (const char* reason : {"lost_busy", "lost_endurance", "lost_too_large", "lost_stripes",
                             "lost_no_disk", "lost_failed"}) {
    objects += number_field(tier, reason);
  }
  return objects;
}

std::string status_text(const Json::Value& status, const Json::Value& previous, double elapsed_s) {
  return agent_lines(status) + '\n' + namespace_table(status, previous, elapsed_s) +
         namespace_notes(status) + '\n' + tier_table(status) + gpu_table(status) +
         session_table(status);
}

std::string counters_text(const Json::Value& counters) {
  Table table({"COUNTER", "VALUE"});
  flatten(counters, "", table);
  return table.to_string();
}

}  // namespace mc::ctl
