// SPDX-License-Identifier: Apache-2.0
//
// The parser of mcctl's command line: declarations and words in, values and a run out. No other
// file of ctl/ includes CLI11, which takes seconds to compile.
#include <algorithm>
#include <charconv>
#include <type_traits>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/help.h"
#include "libmc/options/nearest.h"

namespace mc::ctl {
namespace {

// A default that the range does not allow means "not given": the manual page does not show such a
// default.
std::string text_of(const Option& option) {
  return std::visit(
      [&](auto value) -> std::string {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, std::string*>) {
          return *value;
        } else if constexpr (std::is_same_v<Type, unsigned*> ||
                             std::is_same_v<Type, std::uint64_t*> ||
                             std::is_same_v<Type, double*>) {
          const bool shown = !option.range || static_cast<double>(*value) >= option.range->first;
          return shown ? fmt::format("{}", *value) : "";
        } else {
          return {};
        }
      },
      option.value);
}

void note_defaults(Verb& verb) {
  for (Option& option : verb.options) option.default_text = text_of(option);
  for (Verb& inner : verb.verbs) note_defaults(inner);
}

template <typename Number>
std::string number_refusal(const Option& option, const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const char* const kind = std::is_same_v<Number, double> ? "number" : "whole number";
  const bool parsed = error == std::errc() && stop == end;
  if (option.range) {
    const auto [least, most] = *option.range;
    if (parsed && static_cast<double>(number) >= least && static_cast<double>(number) <= most) {
      return {};
    }
    return fmt::format("{} is not a {} from {} to {}", text, kind, least, most);
  }
  return parsed ? "" : fmt::format("{} is not a {}, or is too large", text, kind);
}

// The reason why the option does not allow the text; empty: the text is allowed.
std::string refusal(const Option& option, const std::string& text) {
  if (!option.choices.empty() && std::ranges::find(option.choices, text) == option.choices.end()) {
    return fmt::format("{} is not one of {}", text, fmt::join(option.choices, ", "));
  }
  std::string why;
  if (std::holds_alternative<double*>(option.value)) {
    why = number_refusal<double>(option, text);
  } else if (std::holds_alternative<unsigned*>(option.value)) {
    why = number_refusal<unsigned>(option, text);
  } else if (std::holds_alternative<std::uint64_t*>(option.value)) {
    why = number_refusal<std::uint64_t>(option, text);
  }
  return why.empty() && option.refusal ? option.refusal(text) : why;
}

void add_option(CLI::App& app, const Option& option) {
  const std::string names =
      option.name + (option.earlier_name.empty() ? "" : ',' + option.earlier_name);
  CLI::Option* const added = std::visit(
      [&](auto value) -> CLI::Option* {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, std::monostate>) {
          if (option.name.find("--version") == std::string::npos) {
            return app.set_help_flag(option.name);
          }
          return app.set_version_flag(option.name, std::string(mc_version()));
        } else if constexpr (std::is_same_v<Type, bool*>) {
          return app.add_flag(names, *value);
        } else {
          return app.add_option(names, *value);
        }
      },
      option.value);
  added->required(option.required);
  if (option.is_list() && !option.is_positional()) added->delimiter(',')->allow_extra_args(false);
  if (option.takes_value()) {
    added->check([&option](const std::string& text) { return refusal(option, text); });
  }
  for (const std::string& other : option.excludes) added->excludes(app.get_option(other));
}

void declare(CLI::App& app, const Verb& verb) {
  for (const Option& option : verb.options) add_option(app, option);
  for (const Verb& inner : verb.verbs) {
    CLI::App* const added = app.add_subcommand(inner.name);
    added->fallthrough();  // a global option may stand behind the verb
    declare(*added, inner);
  }
  // At most one verb: a later word may be a key that reads like a verb.
  if (!verb.verbs.empty()) app.require_subcommand(1);
}

// The program and the verbs that the words name, outermost first.
std::vector<const Verb*> named_verbs(const CLI::App& app, const Verb& program) {
  std::vector<const Verb*> path{&program};
  // get_subcommands() without a filter returns the subcommands that the words name.
  for (auto named = app.get_subcommands(); !named.empty();
       named = named.back()->get_subcommands()) {
    const std::string name = named.back()->get_name();
    path.push_back(&*std::ranges::find(path.back()->verbs, name, &Verb::name));
  }
  return path;
}

// True: the words name a verb that does not exist, beside --help.
bool names_unknown_verb(const CLI::App& app, const std::vector<const Verb*>& path) {
  const std::vector<std::string> left = app.remaining(true);
  return !path.back()->verbs.empty() && !left.empty() && !left.front().starts_with('-');
}

Failure explain_parse_error(const CLI::App& app, const CLI::Error& error,
                            const std::vector<const Verb*>& path) {
  const std::string program = words_of(path);
  const std::string help = program + " --help";
  const std::vector<std::string> left = app.remaining(true);
  const std::vector<Verb>& verbs = path.back()->verbs;
  if (left.empty()) {
    if (error.get_name() == "ArgumentMismatch") {
      const std::string text = error.what();
      return {text.substr(0, text.find(':')) + " needs a value", help};
    }
    const bool verb_missing = !verbs.empty() && error.get_name() == "RequiredError";
    return {verb_missing ? "a verb is missing" : error.what(), help};
  }
  const std::string word = left.front().substr(0, left.front().find('='));
  if (word.starts_with("-")) {
    std::vector<std::string> names;
    for (auto verb = path.rbegin(); verb != path.rend(); ++verb) {
      for (const Option& option : (*verb)->options) {
        for (const std::string& name : names_of(option)) {
          if (name.starts_with("--")) names.push_back(name);
        }
      }
    }
    const std::string meant = options::nearest(word, names);
    return {fmt::format("there is no option {}", word), meant.empty() ? help : meant};
  }
  if (verbs.empty()) return {fmt::format("'{}' is one argument too many", word), help};
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  const std::string meant = options::nearest(word, names);
  return {fmt::format("there is no verb '{}'", word), meant.empty() ? help : program + ' ' + meant};
}

}  // namespace

int run_command_line(Verb& program, Context& context, std::vector<std::string> words) {
  note_defaults(program);
  CLI::App app{"", program.name};
  declare(app, program);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  // CLI11 takes the words from the back.
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  const auto refuse = [&](const CLI::Error& error) {
    std::vector<const Verb*> path = named_verbs(app, program);
    const Failure failure = explain_parse_error(app, error, path);
    // The parser has stored no option yet if it stopped at a word.
    const auto arguments = std::ranges::find(words, "--");
    context.json |= std::find(words.begin(), arguments, "--json") != arguments;
    path.erase(path.begin());
    report(context, words_of(path), kExitUsage, failure);
    return kExitUsage;
  };
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp& help) {
    const std::vector<const Verb*> path = named_verbs(app, program);
    if (names_unknown_verb(app, path)) return refuse(help);
    fmt::print("{}", manual_page(path));
    return kExitOk;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{} {}\n", program.name, version.what());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return refuse(error);
  }
  const std::vector<const Verb*> path = named_verbs(app, program);
  path.back()->run();
  return context.exit_code;
}

}  // namespace mc::ctl
