// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/agent_view.h"
#include "ctl/text/json.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

struct TopOptions {
  double interval_s = 1;
  bool once = false;
};

// Nullopt after a reported failure.
std::optional<TopLook> look(Context& context) {
  TopLook now;
  Json::Value request;
  request["verb"] = "status";
  auto status = ask_agent(context, "top", request);
  if (!status) return std::nullopt;
  now.status = std::move(*status);
  if (field(now.status, "cluster").isNull()) return now;
  request["verb"] = "rails";
  auto rails = ask_agent(context, "top", request);
  if (!rails) return std::nullopt;
  now.rails = std::move(*rails);
  return now;
}

void show(const Context& context, const Json::Value& sample, bool redraw) {
  if (context.json) {
    print_json_line(sample);
  } else {
    fmt::print("{}{}{}", redraw ? "\x1b[H\x1b[2J" : "", top_text(sample), redraw ? "" : "\n");
  }
  std::fflush(stdout);
}

void run_top(Context& context, const TopOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto period = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.interval_s));
  const bool redraw = !options.once && !context.json && isatty(STDOUT_FILENO) == 1;
  auto before_at = Clock::now();
  auto before = look(context);
  while (before && std::ferror(stdout) == 0) {
    std::this_thread::sleep_until(before_at + period);
    const auto now_at = Clock::now();
    auto now = look(context);
    if (!now) return;
    const double elapsed_s = std::chrono::duration<double>(now_at - before_at).count();
    show(context, top_sample(*before, *now, elapsed_s), redraw);
    if (options.once) return;
    before = std::move(now);
    before_at = now_at;
  }
}

}  // namespace

Verb top_verb(Context& context) {
  auto options = std::make_shared<TopOptions>();
  return {
      .name = "top",
      .text = R"(Watch the current activity of the agent

Shows the rates of each interval: puts, evictions and requests of each namespace and of the
busiest sessions, the objects fetched from other hosts and served to them, and the load of each
rail. Hits on this host are not shown, because clients read these objects without asking the
agent.

The verb ends on a signal, or after one interval with --once. With --json it prints one document
per line.)",
      .footer = R"(EXAMPLES
  mcctl top
  mcctl top --interval 5
  mcctl top --once --json | jq .rates

EXIT STATUS
  0 the agent answered; 1 it did not; 2 wrong usage)",
      .options = {{"--interval",
                   &options->interval_s,
                   "The time between two samples",
                   "SECONDS",
                   {{0.1, 3600}}},
                  {"--once", &options->once, "End after one interval"}},
      .run = [options, &context] { run_top(context, *options); },
  };
}

}  // namespace mc::ctl
