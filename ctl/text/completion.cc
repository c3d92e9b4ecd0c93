// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "ctl/text/help.h"

namespace mc::ctl {
namespace {

// A verb and the words that name it after the program's name. Empty words: the program.
struct Command {
  std::string words;  // "segment resize"
  const Verb* verb;
};

void add_commands(const Verb& verb, const std::string& words, std::vector<Command>& out) {
  out.push_back({words, &verb});
  for (const Verb& inner : verb.verbs) {
    add_commands(inner, words.empty() ? inner.name : words + ' ' + inner.name, out);
  }
}

// The program first, then every verb, each before its inner verbs.
std::vector<Command> commands_of(const Verb& program) {
  std::vector<Command> out;
  add_commands(program, "", out);
  return out;
}

// The allowed values of the first positional argument that has any.
std::vector<std::string> argument_choices(const Verb& verb) {
  for (const Option& option : verb.options) {
    if (option.is_positional() && !option.choices.empty()) return option.choices;
  }
  return {};
}

// The text in single quotes, for each of the shells.
std::string quoted(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// The path in the form of the scripts: "/segment/resize".
std::string slashed(const std::string& path) {
  std::string out = path.empty() ? "" : "/" + path;
  for (char& c : out) {
    if (c == ' ') c = '/';
  }
  return out;
}

// The patterns of "case path/word in" that match verbs.
std::string verb_patterns(const std::vector<Command>& tree, std::string_view separator = "|") {
  std::vector<std::string> patterns;
  for (const Command& command : tree) {
    if (!command.words.empty()) patterns.push_back(slashed(command.words));
  }
  return fmt::format("{}", fmt::join(patterns, separator));
}

// The words that may follow: inner verbs, the values of the first argument, options, and the
// program's options.
std::string words_after(const Command& command, const Verb& program) {
  std::vector<std::string> words;
  for (const Verb& inner : command.verb->verbs) words.push_back(inner.name);
  for (const std::string& choice : argument_choices(*command.verb)) words.push_back(choice);
  const auto add_options = [&](const Verb& from) {
    for (const Option& option : from.options) {
      if (option.is_positional()) continue;
      for (const std::string& name : names_of(option)) words.push_back(name);
    }
  };
  add_options(*command.verb);
  if (command.verb != &program) add_options(program);
  return fmt::format("{}", fmt::join(words, " "));
}

// A line of a shell that prints the present values of the option, one on each line.
std::string live_line(const Verb& program, const Option& option) {
  return fmt::format("command {} --timeout-ms 500 {} 2>/dev/null | sed \"1d; s/ .*//\"",
                     program.name, option.live_values);
}

// The actions for options with fixed values, with live values and with any values. "{}" stands for
// the values, or for the line that prints the values.
struct Actions {
  std::string_view fixed;
  std::string_view live;
  std::string_view any;
};

// An arm "'/put --pin') action ;;" for each option that takes a value. The program's options match
// after every verb.
std::string value_arms(const std::vector<Command>& tree, const Actions& actions) {
  std::string out;
  for (const Command& command : tree) {
    for (const Option& option : command.verb->options) {
      if (option.is_positional() || !option.takes_value()) continue;
      for (const std::string& name : names_of(option)) {
        const std::string pattern = command.words.empty()
                                        ? "*' " + name + "'"
                                        : quoted(slashed(command.words) + ' ' + name);
        out += fmt::format("    {}) ", pattern);
        if (!option.choices.empty()) {
          out += fmt::format(fmt::runtime(actions.fixed), fmt::join(option.choices, " "));
        } else if (!option.live_values.empty()) {
          out += fmt::format(fmt::runtime(actions.live), live_line(*tree.front().verb, option));
        } else {
          out += actions.any;
        }
        out += " ;;\n";
      }
    }
  }
  return out;
}

}  // namespace

std::string bash_completion(const Verb& program) {
  const std::vector<Command> tree = commands_of(program);
  const std::string& name = program.name;
  std::string out = fmt::format(
      "# bash completion for {0}; made by: {0} completion bash\n"
      "_{0}() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev= path= words= i\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD > 0)); then prev=${{COMP_WORDS[COMP_CWORD-1]}}; fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$path/${{COMP_WORDS[i]}}\" in\n"
      "    {1}) path=$path/${{COMP_WORDS[i]}} ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path $prev\" in\n"
      "{2}"
      "  esac\n"
      "  case \"$path\" in\n",
      name, verb_patterns(tree),
      value_arms(tree, {.fixed = "COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return",
                        .live = "COMPREPLY=($(compgen -W \"$({})\" -- \"$cur\")); return",
                        .any = "return"}));
  for (const Command& command : tree) {
    out += fmt::format("    {}) words={} ;;\n", quoted(slashed(command.words)),
                       quoted(words_after(command, program)));
  }
  out += fmt::format(
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}}\n"
      "complete -o default -F _{0} {0}\n",
      name);
  return out;
}

std::string zsh_completion(const Verb& program) {
  const std::vector<Command> tree = commands_of(program);
  const std::string& name = program.name;
  std::string out = fmt::format(
      "#compdef {0}\n"
      "# zsh completion for {0}; made by: {0} completion zsh\n"
      "_{0}() {{\n"
      "  local at= i\n"
      "  local -a entries options\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$at/${{words[i]}}\" in\n"
      "    {1}) at=$at/${{words[i]}} ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$at ${{words[CURRENT-1]}}\" in\n"
      "{2}"
      "  esac\n"
      "  case \"$at\" in\n",
      name, verb_patterns(tree),
      value_arms(tree, {.fixed = "compadd -- {}; return",
                        .live = "compadd -- ${{(f)\"$({})\"}}; return",
                        .any = "_files; return"}));
  // _describe takes "word:help" and needs colons of the word escaped; no verb or option has a
  // colon.
  for (const Command& command : tree) {
    out += fmt::format("    {}) entries=(\n", quoted(slashed(command.words)));
    for (const Verb& inner : command.verb->verbs) {
      out += "      " + quoted(inner.name + ':' + summary_of(inner)) + '\n';
    }
    for (const std::string& choice : argument_choices(*command.verb)) {
      out += "      " + quoted(choice) + '\n';
    }
    out += "    ); options=(\n";
    for (const Verb* from : {command.verb, &program}) {
      for (const Option& option : from->options) {
        if (option.is_positional()) continue;
        for (const std::string& word : names_of(option)) {
          out += "      " + quoted(word + ':' + option.help) + '\n';
        }
      }
      if (command.verb == &program) break;
    }
    out += "    ) ;;\n";
  }
  out += fmt::format(
      "  esac\n"
      "  _describe '{0}' entries\n"
      "  _describe -o '{0}' options\n"
      "  if [[ ${{words[CURRENT]}} != -* && -n $at ]]; then _files; fi\n"
      "}}\n"
      "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _{0} \"$@\"; else compdef _{0} {0}; "
      "fi\n",
      name);
  return out;
}

std::string fish_completion(const Verb& program) {
  const std::vector<Command> tree = commands_of(program);
  const std::string& name = program.name;
  std::string out = fmt::format(
      "# fish completion for {0}; made by: {0} completion fish\n"
      "function __{0}_at\n"
      "  set -l at ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$at/$word\"\n"
      "      case {1}\n"
      "        set at \"$at/$word\"\n"
      "    end\n"
      "  end\n"
      "  test \"$at\" = \"$argv[1]\"\n"
      "end\n",
      name, verb_patterns(tree, " "));
  for (const Command& command : tree) {
    const std::string here =
        fmt::format("complete -c {} -n {}", name,
                    quoted(fmt::format("__{}_at \"{}\"", name, slashed(command.words)), true));
    for (const Verb& inner : command.verb->verbs) {
      out += fmt::format("{} -f -a {} -d {}\n", here, inner.name, quoted(summary_of(inner), true));
    }
    if (const auto choices = argument_choices(*command.verb); !choices.empty()) {
      out += fmt::format("{} -f -a '{}'\n", here, fmt::join(choices, " "));
    }
    for (const Option& option : command.verb->options) {
      if (option.is_positional()) continue;
      // Global options are offered everywhere.
      std::string line = command.words.empty() ? "complete -c " + name : here;
      for (const std::string& word : names_of(option)) {
        line += word.starts_with("--") ? " -l " + word.substr(2) : " -s " + word.substr(1);
      }
      if (!option.choices.empty()) {
        line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.live_values.empty()) {
        line += fmt::format(" -x -a {}", quoted('(' + live_line(program, option) + ')', true));
      } else if (option.takes_value()) {
        line += " -r";
      }
      out += line + " -d " + quoted(option.help, true) + '\n';
    }
  }
  return out;
}

}  // namespace mc::ctl
