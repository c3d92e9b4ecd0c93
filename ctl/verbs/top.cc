// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <unistd.h>

#include "ctl/agent_question.h"
#include "ctl/text/json.h"
#include "ctl/text/rails_view.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Watch what the agent does right now\n"
    "\n"
    "Shows, again and again, the rates of the last interval: puts, evictions and requests of each\n"
    "namespace and of the busiest sessions, what was fetched from other hosts and served to them,\n"
    "and what each rail carries. Hits of this host are not seen: clients read them without "
    "asking.\n"
    "\n"
    "Ends by a signal, or after one interval with --once. With --json one document a line.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  mcctl top\n"
    "  mcctl top --interval 5\n"
    "  mcctl top --once --json | jq .rates\n"
    "\n"
    "EXIT STATUS\n"
    "  0 the agent answered; 1 it did not; 2 wrong usage";

struct TopOptions {
  double interval_s = 1;
  bool once = false;
};

// None: no answer; the failure was reported.
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

void register_top(CLI::App& app, Context& context) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* verb = app.add_subcommand("top", std::string(kDescription));
  verb->add_option("--interval", options->interval_s, "Between two looks")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0).description(""))
      ->capture_default_str();
  verb->add_flag("--once", options->once, "End after one interval");
  verb->footer(std::string(kFooter));
  verb->callback([options, &context] { run_top(context, *options); });
}

}  // namespace mc::ctl
