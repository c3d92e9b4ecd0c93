// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/embedded.h"
#include "ctl/command.h"
#include "ctl/text/failure.h"

namespace mc::ctl {
namespace {

Verb program_of(Context& context) {
  return {
      .name = "mcctl",
      .text = R"(Inspect and operate the KV-cache agent of this host

mcctl talks to the mc-agent of this host over its unix socket. It shows what the agent holds,
reads and writes objects, resizes the pool, measures performance and checks the host.

Global options may stand before or after the verb. After -- every word is an argument, even
one that starts with a dash. "mcctl help VERB" is the same as "mcctl VERB --help". Each
verb has a manual page, such as mcctl-segment-resize(1).)",
      .footer = R"(ENVIRONMENT
  MC_AGENT   the agent's socket if --agent is not given; without either, mcctl uses the first
             of /run/mc/agent.sock and /dev/shm/mc-UID/agent.sock that exists
  NO_COLOR   if set, mcctl prints no colours

EXAMPLES
  mcctl status
  echo hello | mcctl put greeting && mcctl get greeting
  mcctl doctor

EXIT STATUS
  0 success; 1 failure; 2 wrong usage; 3 the object does not exist; 4 no master or holder answers)",
      .options =
          {{"--agent", &context.agent,
            "The agent's socket; default: MC_AGENT, else a usual place (see mcctl --help)",
            "SOCKET"},
           {.name = "--namespace",
            .value = &context.name_space,
            .help = "The namespace whose objects and pool the verb uses",
            .type = "NAME",
            .refusal =
                [](const std::string& name) {
                  const bool fits = !name.empty() && name.size() <= MC_MAX_NAMESPACE_BYTES;
                  return fits ? std::string() : "the name of a namespace has 1 to 64 bytes";
                },
            .live_values = "namespace list"},
           {"--timeout-ms",
            &context.timeout_ms,
            "The longest time for a request, and for the wait until the agent answers; default: "
            "5000",
            "MS",
            {{1, MC_MAX_TIMEOUT_NS / 1000000}}},
           {"--json", &context.json,
            "Print one JSON document, errors included; lists of objects are JSON lines"},
           {.name = "--version", .help = "Print the version"},
           {.name = "-h,--help", .help = "Print this text"}},
      .verbs = {status_verb(context), ls_verb(context), stat_verb(context), put_verb(context),
                get_verb(context), rm_verb(context), exists_verb(context), pin_verb(context),
                evict_verb(context), segment_verb(context), namespace_verb(context)},
  };
}

// Warnings of an embedded agent. Standard output is for the data of the verbs.
void log_to_standard_error() {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("mcctl", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_level(spdlog::level::warn);
}

int run(std::vector<std::string> words) {
  Context context;
  Verb program = program_of(context);
  for (Verb& verb : cluster_verbs(context)) program.verbs.push_back(std::move(verb));
  for (const auto verb : {trace_verb, join_verb, rails_verb, top_verb, events_verb, topo_verb,
                          config_verb, doctor_verb, bench_verb, replay_verb, support_bundle_verb}) {
    program.verbs.push_back(verb(context));
  }
  program.verbs.push_back(completion_verb(program));
  program.verbs.push_back(manual_verb(context, program));

  int exit_code = kExitFailed;
  try {
    exit_code = run_command_line(program, context, std::move(words));
  } catch (const std::exception& error) {
    fmt::print(stderr,
               "mcctl: {}\n  try: the same with fewer or smaller objects; mcctl doctor checks this "
               "host\n",
               error.what());
  }
  if (std::fflush(stdout) != 0 && exit_code == kExitOk) {
    fmt::print(stderr, "mcctl: cannot write standard output\n  try: check the space left\n");
    exit_code = kExitFailed;
  }
  return exit_code;
}

}  // namespace
}  // namespace mc::ctl

int main(int argc, char** argv) {
  mc::ctl::log_to_standard_error();
  mc::agent::register_embedded_agent();
  return mc::ctl::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
