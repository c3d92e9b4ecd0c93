// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "agent/embedded_connector.h"
#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/help.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Show and steer the agent of this host's KV cache\n"
    "\n"
    "mcctl talks to the mc-agent of this host over its unix socket: it shows what the agent "
    "holds,\n"
    "reads and writes objects, resizes the pool, measures, and checks the host.\n"
    "\n"
    "Global options may stand before or after the verb. After -- every word is an argument, even\n"
    "one that starts with a dash. \"mcctl help VERB\" is \"mcctl VERB --help\".";

constexpr std::string_view kFooter =
    "ENVIRONMENT\n"
    "  MC_AGENT   the agent's socket, when --agent does not name it; without either it is the "
    "first\n"
    "             of /run/mc/agent.sock and /dev/shm/mc-UID/agent.sock that exists\n"
    "  NO_COLOR   when set, nothing is coloured\n"
    "\n"
    "EXAMPLES\n"
    "  mcctl status\n"
    "  echo hello | mcctl put greeting && mcctl get greeting\n"
    "  mcctl doctor\n"
    "\n"
    "EXIT STATUS\n"
    "  0 all went well; 1 failed; 2 wrong usage; 3 there is no such object";

void add_globals(CLI::App& app, Context& context) {
  app.add_option("--agent", context.agent,
                 "The agent's socket; default: MC_AGENT, else the usual places (see ENVIRONMENT)")
      ->type_name("SOCKET");
  app.add_option("--namespace", context.name_space, "Whose objects and pool the verb is about")
      ->type_name("NAME")
      ->capture_default_str()
      ->check([](const std::string& name) {
        const bool fits = !name.empty() && name.size() <= MC_MAX_NAMESPACE_BYTES;
        return fits ? std::string() : "a namespace has a name of 1 to 64 bytes";
      });
  app.add_option("--timeout-ms", context.timeout_ms,
                 "How long a request, and the wait for the agent, may take")
      ->type_name("MS")
      ->capture_default_str()
      ->check(
          CLI::Range(std::uint64_t{1}, std::uint64_t{MC_MAX_TIMEOUT_NS / 1000000}).description(""));
  app.add_flag("--json", context.json,
               "Print one JSON document, errors included; lists of objects are JSON lines");
  app.set_version_flag("--version", std::string("mcctl ") + mc_version(), "Print the version");
  app.set_help_flag("-h,--help", "Print this text");
}

void register_verbs(CLI::App& app, Context& context) {
  register_status(app, context);
  register_objects(app, context);
  register_segment(app, context);
  register_cluster(app, context);
  register_rails(app, context);
  register_top(app, context);
  register_topo(app, context);
  register_config(app, context);
  register_doctor(app, context);
  register_bench(app, context);
  register_replay(app, context);
  register_completion(app, context);
}

// Lets global options stand behind a verb.
void let_globals_follow(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verb->fallthrough();
    let_globals_follow(*verb);
  }
}

int parse_and_run(CLI::App& app, Context& context, std::vector<std::string> words) {
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  // CLI11 takes the words from the back.
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitOk;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::string verb;
    active_app(app, &verb);
    report(context, verb, kExitUsage, explain_parse_error(app, error));
    return kExitUsage;
  }
  if (app.get_subcommands().empty()) {
    report_usage(context, "", "a verb is missing", "mcctl --help, or mcctl status to begin with");
  }
  return context.exit_code;
}

int run(std::vector<std::string> words) {
  CLI::App app{std::string(kDescription), "mcctl"};
  app.footer(std::string(kFooter));
  app.formatter(std::make_shared<ManualFormatter>());
  Context context;
  add_globals(app, context);
  register_verbs(app, context);
  let_globals_follow(app);
  // At most one verb: later words may be keys that read like one.
  app.require_subcommand(0, 1);

  int exit_code = kExitFailed;
  try {
    exit_code = parse_and_run(app, context, std::move(words));
  } catch (const std::exception& error) {
    fmt::print(stderr,
               "mcctl: {}\n  try: the same with less at a time; mcctl doctor checks this host\n",
               error.what());
  }
  if (std::fflush(stdout) != 0 && exit_code == kExitOk) {
    fmt::print(stderr,
               "mcctl: standard output could not be written\n  try: check the space left\n");
    exit_code = kExitFailed;
  }
  return exit_code;
}

}  // namespace
}  // namespace mc::ctl

int main(int argc, char** argv) {
  mc::agent::register_embedded_agent();
  return mc::ctl::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
