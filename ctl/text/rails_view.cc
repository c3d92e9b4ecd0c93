// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/agent_view.h"

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

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

}  // namespace mc::ctl
