// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/agent_view.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

constexpr std::size_t kShownSessions = 10;

std::string peer_name(const Json::Value& peer) {
  const std::string address = text_field(peer, "address");
  return address.empty() ? "node " + text_field(peer, "node") : address;
}

std::string rate_text(std::uint64_t bytes_per_s) { return format_bytes(bytes_per_s) + "/s"; }

std::string load_text(const Json::Value& rail) {
  const std::uint64_t window = number_field(rail, "window_bytes");
  if (window == 0) return "-";
  return fmt::format("{:.0f}%", 100.0 *
                                    static_cast<double>(number_field(rail, "outstanding_bytes")) /
                                    static_cast<double>(window));
}

// The rate of a counter. After a restart, the agent counts from zero again.
std::uint64_t rate_of(const Json::Value& before, const Json::Value& now, std::string_view name,
                      double elapsed_s) {
  const std::uint64_t old_count = number_field(before, name);
  const std::uint64_t new_count = number_field(now, name);
  if (before.isNull() || new_count < old_count || elapsed_s <= 0) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(new_count - old_count) / elapsed_s + 0.5);
}

// The entry of the list that has the same text in this field.
const Json::Value& same(const Json::Value& list, const Json::Value& entry, std::string_view name) {
  static const Json::Value kNull;
  for (const Json::Value& other : list) {
    if (text_field(other, name) == text_field(entry, name)) return other;
  }
  return kNull;
}

Json::Value namespaces_of(const TopLook& before, const TopLook& now, double elapsed_s) {
  Json::Value list(Json::arrayValue);
  for (const Json::Value& entry : array_field(now.status, "namespaces")) {
    const Json::Value& old = same(array_field(before.status, "namespaces"), entry, "name");
    Json::Value item;
    for (const char* name : {"name", "pool_bytes", "used_bytes", "objects"}) {
      item[name] = field(entry, name);
    }
    for (const char* name : {"puts", "put_bytes", "evictions", "removes", "no_space"}) {
      item[std::string(name) + "_per_s"] = u64(rate_of(old, entry, name, elapsed_s));
    }
    list.append(item);
  }
  return list;
}

Json::Value sessions_of(const TopLook& before, const TopLook& now, double elapsed_s) {
  std::vector<Json::Value> sessions;
  for (const Json::Value& entry : array_field(now.status, "sessions")) {
    const Json::Value& old = same(array_field(before.status, "sessions"), entry, "id");
    Json::Value item;
    for (const char* name : {"id", "pid", "label", "namespace", "pinned_objects"}) {
      item[name] = field(entry, name);
    }
    item["requests_per_s"] = u64(rate_of(old, entry, "requests", elapsed_s));
    sessions.push_back(std::move(item));
  }
  std::ranges::stable_sort(sessions, std::ranges::greater{}, [](const Json::Value& session) {
    return number_field(session, "requests_per_s");
  });
  Json::Value list(Json::arrayValue);
  for (Json::Value& session : sessions) list.append(std::move(session));
  return list;
}

Json::Value peers_of(const TopLook& before, const TopLook& now, double elapsed_s) {
  Json::Value peers = array_field(now.rails, "peers");
  for (Json::Value& peer : peers) {
    const Json::Value& old = same(array_field(before.rails, "peers"), peer, "node");
    if (!peer.isObject() || !peer["rails"].isArray()) continue;
    for (Json::Value& rail : peer["rails"]) {
      const Json::Value& was = same(array_field(old, "rails"), rail, "name");
      if (!rail.isObject()) continue;
      rail["bytes_per_s"] = u64(rate_of(was, rail, "done_bytes", elapsed_s));
    }
  }
  return peers;
}

std::uint64_t sum(const Json::Value& list, std::string_view name) {
  std::uint64_t total = 0;
  for (const Json::Value& item : list) total += number_field(item, name);
  return total;
}

// The transport that carries large reads beside TCP, and the reasons that limit its use.
std::string one_sided_text(const Json::Value& beside) {
  const std::string transport = text_field(beside, "transport");
  const std::string obstacles = text_field(beside, "obstacles");
  if (transport.empty()) return obstacles.empty() ? "" : "TCP alone: " + obstacles + "\n";
  return "Beside TCP: " + transport + ", " + text_field(beside, "devices") +
         (obstacles.empty() ? "" : "; not used: " + obstacles) + "\n";
}

}  // namespace

std::string rails_text(const Json::Value& rails) {
  Table table({"PEER", "BY", "RAIL", "HEALTH", "LOAD", "MEASURED", "LATENCY", "CARRIED", "SLICES",
               "FAILURES", "SENT AGAIN"});
  std::string last;
  for (const Json::Value& peer : array_field(rails, "peers")) {
    for (const Json::Value& rail : array_field(peer, "rails")) {
      const std::uint64_t latency_ns = number_field(rail, "latency_ns");
      table.add_row({peer_name(peer), text_field(rail, "transport"), text_field(rail, "name"),
                     text_field(rail, "health"), load_text(rail),
                     rate_text(number_field(rail, "bandwidth_bytes_per_s")),
                     latency_ns == 0 ? "-" : format_duration_ns(static_cast<double>(latency_ns)),
                     format_bytes(number_field(rail, "done_bytes")),
                     format_count(number_field(rail, "done_slices")),
                     format_count(number_field(rail, "failures")),
                     format_count(number_field(rail, "taken_back_slices"))});
      const std::string note = text_field(rail, "note");
      if (!note.empty()) {
        last += fmt::format("{}, {}: {}\n", peer_name(peer), text_field(rail, "name"), note);
      }
    }
  }
  last += one_sided_text(field(rails, "one_sided"));
  if (table.empty()) {
    return "This agent has no rails: it makes them to a peer when it first needs something of "
           "it.\n" +
           last;
  }
  return table.to_string() + last;
}

Json::Value top_sample(const TopLook& before, const TopLook& now, double elapsed_s) {
  Json::Value sample;
  sample["elapsed_s"] = elapsed_s;
  sample["pid"] = field(now.status, "pid");
  sample["uptime_s"] = field(now.status, "uptime_s");
  sample["namespaces"] = namespaces_of(before, now, elapsed_s);
  sample["sessions"] = sessions_of(before, now, elapsed_s);
  Json::Value& rates = sample["rates"];
  for (const char* name : {"puts_per_s", "put_bytes_per_s", "evictions_per_s", "no_space_per_s"}) {
    rates[name] = u64(sum(sample["namespaces"], name));
  }
  rates["requests_per_s"] = u64(sum(sample["sessions"], "requests_per_s"));
  if (!now.rails.isNull()) {
    sample["peers"] = peers_of(before, now, elapsed_s);
    rates["fetched_bytes_per_s"] = u64(rate_of(before.rails, now.rails, "read_bytes", elapsed_s));
    rates["served_bytes_per_s"] = u64(rate_of(before.rails, now.rails, "served_bytes", elapsed_s));
  }
  return sample;
}

std::string top_text(const Json::Value& sample) {
  const Json::Value& rates = field(sample, "rates");
  std::string out = fmt::format(
      "pid {}, up {}, {} sessions\nputs {}/s, {}; evictions {}/s; no space {}/s; requests {}/s\n",
      number_field(sample, "pid"),
      format_duration_ns(static_cast<double>(number_field(sample, "uptime_s")) * 1e9),
      array_field(sample, "sessions").size(), format_count(number_field(rates, "puts_per_s")),
      rate_text(number_field(rates, "put_bytes_per_s")),
      format_count(number_field(rates, "evictions_per_s")),
      format_count(number_field(rates, "no_space_per_s")),
      format_count(number_field(rates, "requests_per_s")));
  const bool clustered = field(sample, "peers").isArray();
  if (clustered) {
    out += fmt::format("fetched {}, served {}\n",
                       rate_text(number_field(rates, "fetched_bytes_per_s")),
                       rate_text(number_field(rates, "served_bytes_per_s")));
  }
  Table spaces({"NAMESPACE", "USED", "POOL", "OBJECTS", "PUTS/s", "PUT BYTES/s", "EVICTED/s"});
  for (const Json::Value& entry : array_field(sample, "namespaces")) {
    spaces.add_row({text_field(entry, "name"), format_bytes(number_field(entry, "used_bytes")),
                    format_bytes(number_field(entry, "pool_bytes")),
                    format_count(number_field(entry, "objects")),
                    format_count(number_field(entry, "puts_per_s")),
                    format_bytes(number_field(entry, "put_bytes_per_s")),
                    format_count(number_field(entry, "evictions_per_s"))});
  }
  out += "\n" + spaces.to_string();
  Table sessions({"PID", "LABEL", "NAMESPACE", "REQUESTS/s", "PINNED"});
  for (const Json::Value& entry : array_field(sample, "sessions")) {
    if (number_field(entry, "requests_per_s") == 0 && number_field(entry, "pinned_objects") == 0) {
      continue;
    }
    sessions.add_row({text_field(entry, "pid"), text_field(entry, "label"),
                      text_field(entry, "namespace"),
                      format_count(number_field(entry, "requests_per_s")),
                      format_count(number_field(entry, "pinned_objects"))});
    if (sessions.row_count() == kShownSessions) break;
  }
  if (!sessions.empty()) out += "\n" + sessions.to_string();
  Table rails({"PEER", "BY", "RAIL", "HEALTH", "LOAD", "NOW", "MEASURED", "FAILURES"});
  for (const Json::Value& peer : array_field(sample, "peers")) {
    for (const Json::Value& rail : array_field(peer, "rails")) {
      rails.add_row({peer_name(peer), text_field(rail, "transport"), text_field(rail, "name"),
                     text_field(rail, "health"), load_text(rail),
                     rate_text(number_field(rail, "bytes_per_s")),
                     rate_text(number_field(rail, "bandwidth_bytes_per_s")),
                     format_count(number_field(rail, "failures"))});
    }
  }
  if (!rails.empty()) out += "\n" + rails.to_string();
  return out;
}

}  // namespace mc::ctl
