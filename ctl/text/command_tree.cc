// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/command_tree.h"

#include <sstream>

#include "ctl/text/help.h"

namespace mc::ctl {
namespace {

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) out += (out.empty() ? "" : " ") + word;
  return out;
}

// CLI11 shows a set of choices as "{a,b,c}" behind the type's name and keeps no list of them.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t from = type.find('{');
  const std::size_t to = type.find('}');
  std::vector<std::string> out;
  if (from == std::string::npos || to == std::string::npos || to < from) return out;
  std::istringstream list(type.substr(from + 1, to - from - 1));
  for (std::string choice; std::getline(list, choice, ',');) out.push_back(choice);
  return out;
}

void add_command(const CLI::App& app, const std::string& path, std::vector<Command>& out) {
  Command command;
  command.path = path;
  command.help = one_line(summary_of(app));
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      if (command.choices.empty()) command.choices = choices_of(*option);
      continue;
    }
    CommandOption value;
    for (const std::string& name : option->get_lnames()) value.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) value.names.push_back("-" + name);
    value.help = one_line(option->get_description());
    value.takes_value = option->get_expected_max() > 0;
    value.choices = choices_of(*option);
    command.options.push_back(std::move(value));
  }
  const auto verbs =
      app.get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
  for (const CLI::App* verb : verbs) command.verbs.push_back(verb->get_name());
  out.push_back(std::move(command));
  for (const CLI::App* verb : verbs) {
    add_command(*verb, path.empty() ? verb->get_name() : path + ' ' + verb->get_name(), out);
  }
}

}  // namespace

std::vector<Command> command_tree(const CLI::App& app) {
  std::vector<Command> out;
  add_command(app, "", out);
  return out;
}

}  // namespace mc::ctl
