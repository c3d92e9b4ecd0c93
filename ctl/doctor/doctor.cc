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

std::size_t count_with(const std::vector<Verdict>& verdicts, Health health) {
  return static_cast<std::size_t>(
      std::count_if(verdicts.begin(), verdicts.end(),
                    [health](const Verdict& verdict) { return verdict.health == health; }));
}

void run_doctor(Context& context) {
  const AgentFacts agent = probe_agent(context);
  const std::vector<Verdict> verdicts = all_checks(probe_host(agent), probe_kernel(), agent);
  const std::size_t failed = count_with(verdicts, Health::kFail);
  const std::size_t warned = count_with(verdicts, Health::kWarn);
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

Verb doctor_verb(Context& context) {
  return {
      .name = "doctor",
      .text = R"(Check this host and its agent, and suggest remedies

Checks each thing that mc depends on. The result is ok, warn (a change is worth while) or fail (a
change is necessary), with a remedy. The checks cover the agent and its version, the masters and
members of its cluster, the clocks of all hosts, the transports to its peers, the permissions of its
directory and socket, the systemd unit, memory, control group, huge pages, limits, CPUs, the source of
time, and the features of the kernel. The verb changes nothing and needs no privileges.

If the agent answers, the limits are those of its process; otherwise they are those of this
shell. mcctl waits --timeout-ms for the agent, but at most 1 s.)",
      .footer = R"(EXAMPLES
  mcctl doctor
  mcctl doctor --json | jq '.checks[] | select(.state != "ok")'

EXIT STATUS
  0 no check fails (there may be warnings); 1 a check fails; 2 wrong usage)",
      .run = [&context] { run_doctor(context); },
  };
}

}  // namespace mc::ctl
