// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/agent_view.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

struct StatusOptions {
  double watch_s = 0;
};

void show_dead_agent(Context& context, const Status& why, bool watching) {
  auto counters = read_counters_page(socket_path(context));
  if (context.json) {
    Json::Value document;
    const Failure failure = explain(why.code(), why.text());
    document["error"]["verb"] = "status";
    document["error"]["cause"] = failure.cause;
    document["error"]["try"] = failure.remedy;
    if (counters) document["counters"] = *counters;
    watching ? print_json_line(document) : print_json(document);
    context.exit_code = kExitFailed;
    return;
  }
  report_status(context, "status", why.code(), why.text());
  if (counters) {
    const bool whole = field(*counters, "namespaces").isArray();
    fmt::print("The agent does not answer. Its counters, as it left them:\n\n{}",
               whole ? status_text(*counters, Json::Value(), 0) : counters_text(*counters));
  }
}

// Shows the status once. Returns the answer, or null.
Json::Value show_status(Context& context, const Json::Value& previous, double elapsed_s,
                        bool watching) {
  constexpr std::uint64_t kLongestWaitNs = 1000000000u;
  Json::Value request;
  request["verb"] = "status";
  auto answer =
      client::admin_call(socket_path(context), request,
                         std::min(timeout_ns(context), kLongestWaitNs), client::Absent::kWait);
  const bool redraw = watching && !context.json && isatty(STDOUT_FILENO) == 1;
  if (redraw) fmt::print("\x1b[H\x1b[2J");
  if (!answer) {
    show_dead_agent(context, answer.error(), watching);
    return Json::Value();
  }
  context.exit_code = kExitOk;
  if (context.json) {
    watching ? print_json_line(*answer) : print_json(*answer);
  } else {
    fmt::print("{}{}", status_text(*answer, previous, elapsed_s), watching && !redraw ? "\n" : "");
  }
  return *answer;
}

void run_status(Context& context, const StatusOptions& options) {
  using Clock = std::chrono::steady_clock;
  if (options.watch_s <= 0) {
    show_status(context, Json::Value(), 0, false);
    return;
  }
  const auto period =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.watch_s));
  Json::Value previous;
  auto previous_at = Clock::now();
  // Ends on a signal, or when standard output fails.
  while (std::ferror(stdout) == 0) {
    const auto started = Clock::now();
    const double elapsed_s = std::chrono::duration<double>(started - previous_at).count();
    previous = show_status(context, previous, elapsed_s, true);
    previous_at = started;
    std::fflush(stdout);
    std::this_thread::sleep_until(started + period);
  }
}

}  // namespace

Verb status_verb(Context& context) {
  auto options = std::make_shared<StatusOptions>();
  return {
      .name = "status",
      .text = R"(Show the agent, its namespaces and its sessions

Asks the agent of this host. POOL is the size of a namespace's pool, USED the bytes in objects.
PUTS, EVICTED and REMOVED count objects since the agent started, NO SPACE the puts that found no
room, CORRUPT the objects whose bytes did not match their checksum. PINNED is the number of
objects that a session reads in place now. A session is "suspected" if a thread of its process
died; the session ends with the process.

If the agent does not answer, mcctl says so and shows the agent's counters page, which stays
readable while the agent is dead. mcctl waits --timeout-ms for an answer, but at most 1 s.)",
      .footer = R"(EXAMPLES
  mcctl status
  mcctl status --watch 1           again every second, with rates
  mcctl status --json | jq '.namespaces[].used_bytes'

EXIT STATUS
  0 the agent answered; 1 it did not (its counters may still be shown); 2 wrong usage)",
      .options = {{"--watch",
                   &options->watch_s,
                   "Show the status again at this interval, until interrupted; with --json "
                   "one document per line",
                   "SECONDS",
                   {{0.1, 86400}}}},
      .run = [options, &context] { run_status(context, *options); },
  };
}

}  // namespace mc::ctl
