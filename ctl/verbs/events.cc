// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <deque>
#include <string>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/table.h"
#include "libmc/client/admin.h"
#include "libmc/log/recent_events.h"

namespace mc::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowEvery{200};

struct EventOptions {
  bool follow = false;
  std::uint64_t limit = 0;
  std::string level = "info";
};

// As the option log_level names the levels.
constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error"};

// Events have the names of spdlog: "warning", "critical".
std::size_t rank_of(std::string_view level) {
  if (level == "warning") level = "warn";
  if (level == "critical") level = "error";
  return static_cast<std::size_t>(std::ranges::find(kLevels, level) - std::begin(kLevels));
}

void print_event(const Context& context, const Json::Value& event) {
  const std::string line = text_field(event, "line");
  const std::uint64_t time_ms = number_field(event, "time_ms");
  if (!context.json) {
    const auto seconds = static_cast<std::time_t>(time_ms / 1000);
    const std::tm local = fmt::localtime(seconds);
    fmt::print("{:%Y-%m-%dT%H:%M:%S}.{:03}{:%z} {:<7} {}\n", local, time_ms % 1000, local,
               printable(text_field(event, "level")), printable(line));
    return;
  }
  Json::Value document = event;
  document.removeMember("line");
  document["fields"] = Json::Value(Json::objectValue);
  for (const auto& [name, value] : log::pairs_of(line)) document["fields"][name] = value;
  if (document["fields"].empty()) document["fields"]["text"] = line;
  print_json_line(document);
}

// Prints the events of an agent, and follows an agent from restart to restart.
class EventReader {
 public:
  EventReader(Context& context, const EventOptions& options)
      : context_(context), options_(options) {}

  // Prints the events since the last call; at first the earlier ones. False after a reported failure.
  bool read() {
    Json::Value request;
    request["verb"] = "events";
    std::deque<Json::Value> found;
    bool answered = false;
    for (;;) {
      request["after"] = u64(after_);
      const auto answer = first_ ? ask_agent(context_, "events", request) : ask_again(request);
      if (!answer) break;
      answered = true;
      const std::uint64_t before = after_;
      if (is_of_another_agent(*answer)) {
        after_ = 0;
        continue;
      }
      for (const Json::Value& event : array_field(*answer, "events")) take(event, found);
      if (after_ == before) break;
    }
    for (const Json::Value& event : found) print_event(context_, event);
    const bool go_on = answered || !first_;
    first_ = first_ && !answered;
    return go_on;
  }

 private:
  // An agent that is away comes back, perhaps as another process.
  std::optional<Json::Value> ask_again(const Json::Value& request) {
    auto answer = client::admin_call(socket_path(context_), request, timeout_ns(context_));
    if (answer) {
      away_ = false;
      return std::move(*answer);
    }
    if (!away_) {
      fmt::print(stderr, "mcctl: events: {}; waiting for the agent\n",
                 printable(explain(answer.error().code(), answer.error().text()).cause));
    }
    away_ = true;
    return std::nullopt;
  }

  bool is_of_another_agent(const Json::Value& answer) {
    const std::string incarnation = text_field(answer, "incarnation");
    const bool another = !incarnation_.empty() && incarnation != incarnation_;
    incarnation_ = incarnation;
    return another;
  }

  // Notes an event of the wanted levels. --limit counts the earlier events alone.
  void take(const Json::Value& event, std::deque<Json::Value>& found) {
    const std::uint64_t number = number_field(event, "number");
    if (number <= after_) return;
    after_ = number;
    if (rank_of(text_field(event, "level")) < rank_of(options_.level)) return;
    found.push_back(event);
    if (first_ && options_.limit != 0 && found.size() > options_.limit) found.pop_front();
  }

  Context& context_;
  const EventOptions& options_;
  std::string incarnation_;
  std::uint64_t after_ = 0;
  bool first_ = true;
  bool away_ = false;
};

void run_events(Context& context, const EventOptions& options) {
  EventReader reader(context, options);
  // Ends on a signal, or when standard output fails.
  while (reader.read() && options.follow && std::ferror(stdout) == 0) {
    std::fflush(stdout);
    std::this_thread::sleep_for(kFollowEvery);
  }
}

}  // namespace

Verb events_verb(Context& context) {
  auto options = std::make_shared<EventOptions>();
  return {
      .name = "events",
      .text = R"(Show the events of the agent: starts, recoveries, faults, changes

Prints the last lines of the agent's log, at most 1,024, the oldest first. With --follow, mcctl prints
new events as they come, also of the next agent after a restart, until interrupted. The agent notes
events as of its option log_level. With --json, a line is one event with its fields.

Only root and the agent's user may read events. The events are this host's: each agent has its own.)",
      .footer = R"(EXAMPLES
  mcctl events --limit 20
  mcctl events --follow --level warn
  mcctl events --json | jq -r 'select(.fields.event == "pool_recovered") | .fields.objects'

EXIT STATUS
  0 printed; 1 the agent did not answer, or the user may not read events; 2 wrong usage)",
      .options = {{"-f,--follow", &options->follow, "Print new events as they come"},
                  {"--limit", &options->limit, "The largest number of earlier events; 0: all",
                   "COUNT"},
                  {.name = "--level",
                   .value = &options->level,
                   .help = "The least level of an event",
                   .choices = {std::begin(kLevels), std::end(kLevels)}}},
      .run = [options, &context] { run_events(context, *options); },
  };
}

}  // namespace mc::ctl
