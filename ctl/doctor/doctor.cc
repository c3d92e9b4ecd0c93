// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>
#include <unistd.h>

#include "ctl/doctor/doctor_checks.h"
#include "ctl/doctor/doctor_facts.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Check this host and its agent, with remedies\n"
    "\n"
    "Looks at everything mc depends on and says for each whether it is ok, worth a change (warn) "
    "or\n"
    "in the way (fail), and what to do: the agent and its version, what carries bytes from its\n"
    "peers, the rights of its directory and socket, the systemd unit, memory, control group, huge\n"
    "pages, limits, CPUs, clock, and the kernel's features. Changes nothing and needs no rights.\n"
    "\n"
    "Limits are those of the agent's process when it answers, else those of this shell. The wait\n"
    "for the agent is --timeout-ms, but 1 s at most.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  mcctl doctor\n"
    "  mcctl doctor --json | jq '.checks[] | select(.state != \"ok\")'\n"
    "\n"
    "EXIT STATUS\n"
    "  0 nothing fails (there may be warnings); 1 something fails; 2 wrong usage";

std::string_view color(Health health) {
  if (isatty(STDOUT_FILENO) != 1 || std::getenv("NO_COLOR") != nullptr) return "";
  switch (health) {
    case Health::kOk:
      return "\x1b[32m";
    case Health::kWarn:
      return "\x1b[33m";
    default:
      return "\x1b[31m";
  }
}

void print_text(const std::vector<Verdict>& verdicts) {
  std::size_t width = 0;
  for (const Verdict& verdict : verdicts) width = std::max(width, verdict.check.size());
  for (const Verdict& verdict : verdicts) {
    const std::string_view start = color(verdict.health);
    fmt::print("{}{:<4}{}  {:<{}}  {}\n", start, health_name(verdict.health),
               start.empty() ? "" : "\x1b[0m", verdict.check, width, printable(verdict.finding));
    if (!verdict.remedy.empty()) {
      fmt::print("      {:<{}}  try: {}\n", "", width, printable(verdict.remedy));
    }
  }
}

std::size_t count_of(const std::vector<Verdict>& verdicts, Health health) {
  return static_cast<std::size_t>(
      std::count_if(verdicts.begin(), verdicts.end(),
                    [health](const Verdict& verdict) { return verdict.health == health; }));
}

void run_doctor(Context& context) {
  const AgentFacts agent = probe_agent(context);
  const std::vector<Verdict> verdicts = all_checks(probe_host(agent), probe_kernel(), agent);
  const std::size_t failed = count_of(verdicts, Health::kFail);
  const std::size_t warned = count_of(verdicts, Health::kWarn);
  if (failed > 0) context.exit_code = kExitFailed;
  if (!context.json) {
    print_text(verdicts);
    fmt::print("{} ok, {} warn, {} fail\n", verdicts.size() - failed - warned, warned, failed);
    return;
  }
  Json::Value document;
  for (const Verdict& verdict : verdicts) {
    Json::Value entry;
    entry["check"] = verdict.check;
    entry["state"] = std::string(health_name(verdict.health));
    entry["finding"] = verdict.finding;
    entry["remedy"] = verdict.remedy;
    document["checks"].append(entry);
  }
  document["warn"] = Json::UInt64(warned);
  document["fail"] = Json::UInt64(failed);
  print_json(document);
}

}  // namespace

void register_doctor(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("doctor", std::string(kDescription));
  verb->footer(std::string(kFooter));
  verb->callback([&context] { run_doctor(context); });
}

}  // namespace mc::ctl
