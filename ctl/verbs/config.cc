// SPDX-License-Identifier: Apache-2.0

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/table.h"
#include "libmc/options/nearest.h"

namespace mc::ctl {
namespace {

struct ConfigOptions {
  std::string name;
  bool changed = false;
};

// pool-bytes, pool_bytes and --pool-bytes name the same option.
std::string normal_name(std::string name) {
  while (name.starts_with('-')) name.erase(0, 1);
  for (char& c : name) {
    if (c == '_') c = '-';
  }
  return name;
}

Json::Value selected(const Json::Value& answer, const ConfigOptions& options) {
  Json::Value out(Json::arrayValue);
  for (const Json::Value& option : array_field(answer, "options")) {
    const bool named = options.name.empty() ||
                       normal_name(text_field(option, "name")) == normal_name(options.name);
    const bool changed =
        !options.changed || text_field(option, "value") != text_field(option, "default");
    if (named && changed) out.append(option);
  }
  return out;
}

void report_unknown(Context& context, const Json::Value& answer, const std::string& name) {
  std::vector<std::string> names;
  for (const Json::Value& option : array_field(answer, "options")) {
    names.push_back(normal_name(text_field(option, "name")));
  }
  const std::string meant = options::nearest(normal_name(name), names);
  report(context, "config", kExitNotFound,
         {fmt::format("the agent has no option '{}'", name),
          meant.empty() ? "mcctl config lists them all" : "mcctl config " + meant});
}

void run_config(Context& context, const ConfigOptions& options) {
  Json::Value request;
  request["verb"] = "config";
  const auto answer = ask_agent(context, "config", request);
  if (!answer) return;
  const Json::Value chosen = selected(*answer, options);
  if (chosen.empty() && !options.name.empty() && !options.changed) {
    report_unknown(context, *answer, options.name);
    return;
  }
  if (context.json) {
    Json::Value document;
    document["options"] = chosen;
    print_json(document);
    return;
  }
  Table table({"OPTION", "VALUE", "FROM", "DEFAULT", "HELP"});
  for (const Json::Value& option : chosen) {
    table.add_row({text_field(option, "name"), text_field(option, "value"),
                   text_field(option, "source"), text_field(option, "default"),
                   text_field(option, "help")});
  }
  fmt::print("{}", table.empty() ? "every option is at its default\n" : table.to_string());
}

}  // namespace

Verb config_verb(Context& context) {
  auto options = std::make_shared<ConfigOptions>();
  return {
      .name = "config",
      .text = R"(Show the agent's options: value, origin, default

Asks the running agent for each of its options, the value, and the origin of the value: the
default, the configuration file, the environment or the command line. Options are set where the
agent is started. The size of a pool can also be changed while the agent serves, with "mcctl
segment resize".)",
      .footer = R"(EXAMPLES
  mcctl config                     all options
  mcctl config --changed           only options that are not at their default
  mcctl config pool-bytes          one option

EXIT STATUS
  0 shown; 1 the agent did not answer; 2 wrong usage; 3 there is no option of that name)",
      .options = {{"NAME", &options->name, "Show only this option"},
                  {"--changed", &options->changed,
                   "Show only options that are not at their default"}},
      .run = [options, &context] { run_config(context, *options); },
  };
}

}  // namespace mc::ctl
