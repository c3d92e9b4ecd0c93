// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/help.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "ctl/text/nearest.h"

namespace mc::ctl {
namespace {

constexpr std::size_t kColumns = 96;

// The words of text under each other, each line behind so many spaces.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = 0;
  for (std::string word; words >> word;) {
    if (column > 0 && indent + column + 1 + word.size() > kColumns) {
      out += '\n';
      column = 0;
    }
    out += column == 0 ? std::string(indent, ' ') : " ";
    out += word;
    column += word.size() + (column == 0 ? 0 : 1);
  }
  return out + '\n';
}

std::string indented(std::string_view text) {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);)
    out += line.empty() ? "\n" : "  " + line + '\n';
  return out;
}

std::string body_of(const CLI::App& app) {
  const std::string text = app.get_description();
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return {};
  return text.substr(std::min(text.find_first_not_of('\n', end), text.size()));
}

std::string positional_name(const CLI::Option& option) {
  std::string name = option.get_name(true);
  if (option.get_items_expected_max() > 1) name += "...";
  return option.get_required() ? name : '[' + name + ']';
}

std::string synopsis_of(const CLI::App& app, const std::string& name) {
  std::string out = name;
  if (!app.get_subcommands([](const CLI::App*) { return true; }).empty()) {
    return out + (app.get_parent() == nullptr ? " [OPTION]... VERB ..." : " VERB [OPTION]...");
  }
  out += " [OPTION]...";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) out += ' ' + positional_name(*option);
  }
  return out;
}

std::string option_head(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames())
    names += (names.empty() ? "--" : ", --") + name;
  const std::string type = option.get_expected_max() == 0 ? "" : option.get_type_name();
  return type.empty() ? names : names + ' ' + type;
}

std::string option_text(const CLI::Option& option) {
  std::string help = option.get_description();
  const std::string initial = option.get_default_str();
  if (!initial.empty() && help.find("default") == std::string::npos) {
    help += fmt::format(" (default: {})", initial);
  }
  return "  " + option_head(option) + '\n' + wrapped(help, 8);
}

std::string options_of(const CLI::App& app) {
  std::string out;
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional() == positional) out += option_text(*option);
    }
  }
  return out;
}

std::string verbs_of(const CLI::App& app) {
  std::string out;
  std::size_t width = 0;
  const auto verbs =
      app.get_subcommands([](const CLI::App* verb) { return !verb->get_name().empty(); });
  for (const CLI::App* verb : verbs) width = std::max(width, verb->get_name().size());
  for (const CLI::App* verb : verbs) {
    out += fmt::format("  {:<{}}  {}\n", verb->get_name(), width, summary_of(*verb));
  }
  return out;
}

void add_section(std::string& out, std::string_view title, const std::string& text) {
  if (text.empty()) return;
  out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", title, text);
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

// Those of the app and of all around it.
std::vector<std::string> option_names(const CLI::App& innermost) {
  std::vector<std::string> names;
  for (const CLI::App* app = &innermost; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

}  // namespace

std::string summary_of(const CLI::App& app) {
  const std::string text = app.get_description();
  return text.substr(0, text.find('\n'));
}

std::string ManualFormatter::make_help(const CLI::App* app, std::string name,
                                       CLI::AppFormatMode /*mode*/) const {
  std::string summary = summary_of(*app);
  if (!summary.empty() && summary.size() > 1 && summary[1] >= 'a' && summary[1] <= 'z') {
    summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  }
  const CLI::App* root = app;
  while (root->get_parent() != nullptr) root = root->get_parent();

  std::string out;
  add_section(out, "NAME", fmt::format("  {} - {}\n", name, summary));
  add_section(out, "SYNOPSIS", "  " + synopsis_of(*app, name) + '\n');
  add_section(out, "DESCRIPTION", indented(body_of(*app)));
  add_section(out, "VERBS", verbs_of(*app));
  add_section(out, "OPTIONS", options_of(*app));
  if (root != app) {
    std::string global;
    for (const CLI::Option* option : root->get_options()) {
      if (!option->check_name("--help") && !option->check_name("--version")) {
        global += option_text(*option);
      }
    }
    add_section(out, "GLOBAL OPTIONS", global);
  }
  if (const std::string footer = app->get_footer(); !footer.empty()) out += '\n' + footer + '\n';
  return out;
}

const CLI::App& active_app(const CLI::App& app, std::string* words) {
  const CLI::App* at = &app;
  // The list without a filter holds those that the command line names.
  for (auto named = at->get_subcommands(); !named.empty(); named = at->get_subcommands()) {
    at = named.back();
    if (words != nullptr) *words += (words->empty() ? "" : " ") + at->get_name();
  }
  return *at;
}

Failure explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string words;
  const CLI::App& active = active_app(app, &words);
  const std::string program = app.get_name() + (words.empty() ? "" : ' ' + words);
  const std::string help = program + " --help";
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) return {error.what(), help};

  const std::string word = left.front().substr(0, left.front().find('='));
  if (word.starts_with("-")) {
    const std::string meant = nearest(word, option_names(active));
    return {fmt::format("there is no option {}", word), meant.empty() ? help : meant};
  }
  if (const std::vector<std::string> verbs = verb_names(active); !verbs.empty()) {
    const std::string meant = nearest(word, verbs);
    return {fmt::format("there is no verb '{}'", word),
            meant.empty() ? help : program + ' ' + meant};
  }
  return {fmt::format("'{}' is one argument too many", word), help};
}

}  // namespace mc::ctl
