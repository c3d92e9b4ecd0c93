// SPDX-License-Identifier: Apache-2.0
#include "ctl/verbs/completion.h"

#include <memory>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "ctl/command.h"
#include "ctl/text/command_tree.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "Print a completion script for a shell\n"
    "\n"
    "The script completes verbs, options and their fixed values, and file names elsewhere. It is\n"
    "made from this program, so make it again after an upgrade.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  source <(mcctl completion bash)\n"
    "  mcctl completion bash > /etc/bash_completion.d/mcctl\n"
    "  mcctl completion zsh > \"${fpath[1]}/_mcctl\"\n"
    "  mcctl completion fish > ~/.config/fish/completions/mcctl.fish\n"
    "\n"
    "EXIT STATUS\n"
    "  0 printed; 2 wrong usage";

// In single quotes for any of the shells.
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

// One word per verb on the way, as the scripts keep track of it: "/segment/resize".
std::string slashed(const std::string& path) {
  std::string out = path.empty() ? "" : "/" + path;
  for (char& c : out) {
    if (c == ' ') c = '/';
  }
  return out;
}

// The arms of "case path/word in": which words lead one level deeper.
std::string verb_patterns(const std::vector<Command>& tree) {
  std::vector<std::string> patterns;
  for (const Command& command : tree) {
    if (!command.path.empty()) patterns.push_back(slashed(command.path));
  }
  return fmt::format("{}", fmt::join(patterns, "|"));
}

// Verbs first, then what its first argument may be, then options, those of the program included.
std::vector<std::string> words_of(const Command& command, const Command& program) {
  std::vector<std::string> words = command.verbs;
  words.insert(words.end(), command.choices.begin(), command.choices.end());
  const auto add_options = [&](const Command& from) {
    for (const CommandOption& option : from.options) {
      for (const std::string& name : option.names) words.push_back(name);
    }
  };
  add_options(command);
  if (!command.path.empty()) add_options(program);
  return words;
}

// "'/put --pin') what ;;" for each option that takes a value; global ones after every verb.
std::string value_arms(const std::vector<Command>& tree, std::string_view with_choices,
                       std::string_view without) {
  std::string out;
  for (const Command& command : tree) {
    for (const CommandOption& option : command.options) {
      if (!option.takes_value) continue;
      for (const std::string& name : option.names) {
        const std::string pattern =
            command.path.empty() ? "*' " + name + "'" : quoted(slashed(command.path) + ' ' + name);
        out += fmt::format("    {}) ", pattern);
        out += option.choices.empty()
                   ? std::string(without)
                   : fmt::format(fmt::runtime(with_choices), fmt::join(option.choices, " "));
        out += " ;;\n";
      }
    }
  }
  return out;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const std::vector<Command> tree = command_tree(app);
  const std::string name = app.get_name();
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
      value_arms(tree, "COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return", "return"));
  for (const Command& command : tree) {
    out += fmt::format("    {}) words={} ;;\n", quoted(slashed(command.path)),
                       quoted(fmt::format("{}", fmt::join(words_of(command, tree.front()), " "))));
  }
  out += fmt::format(
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}}\n"
      "complete -o default -F _{0} {0}\n",
      name);
  return out;
}

std::string zsh_completion(const CLI::App& app) {
  const std::vector<Command> tree = command_tree(app);
  const std::string name = app.get_name();
  std::string out = fmt::format(
      "#compdef {0}\n"
      "# zsh completion for {0}; made by: {0} completion zsh\n"
      "_{0}() {{\n"
      "  local at= i\n"
      "  local -a entries\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$at/${{words[i]}}\" in\n"
      "    {1}) at=$at/${{words[i]}} ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$at ${{words[CURRENT-1]}}\" in\n"
      "{2}"
      "  esac\n"
      "  case \"$at\" in\n",
      name, verb_patterns(tree), value_arms(tree, "compadd -- {}; return", "_files; return"));
  // _describe wants "word:help", with colons of the word escaped; ours have none.
  for (const Command& command : tree) {
    out += fmt::format("    {}) entries=(\n", quoted(slashed(command.path)));
    for (const Command& verb : tree) {
      const std::size_t parent_size = command.path.empty() ? 0 : command.path.size() + 1;
      const bool below = verb.path.size() > parent_size && verb.path.starts_with(command.path) &&
                         verb.path.find(' ', parent_size) == std::string::npos &&
                         (parent_size == 0 || verb.path[parent_size - 1] == ' ');
      if (below) out += "      " + quoted(verb.path.substr(parent_size) + ':' + verb.help) + '\n';
    }
    for (const std::string& choice : command.choices) out += "      " + quoted(choice) + '\n';
    for (const Command* from : {&command, &tree.front()}) {
      for (const CommandOption& option : from->options) {
        for (const std::string& word : option.names) {
          out += "      " + quoted(word + ':' + option.help) + '\n';
        }
      }
      if (command.path.empty()) break;
    }
    out += "    ) ;;\n";
  }
  out += fmt::format(
      "  esac\n"
      "  _describe -o '{0}' entries\n"
      "  if [[ ${{words[CURRENT]}} != -* && -n $at ]]; then _files; fi\n"
      "}}\n"
      "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _{0} \"$@\"; else compdef _{0} {0}; "
      "fi\n",
      name);
  return out;
}

std::string fish_completion(const CLI::App& app) {
  const std::vector<Command> tree = command_tree(app);
  const std::string name = app.get_name();
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
      name, [&] {
        std::string patterns = verb_patterns(tree);
        for (char& c : patterns) {
          if (c == '|') c = ' ';
        }
        return patterns;
      }());
  for (const Command& command : tree) {
    const std::string here =
        fmt::format("complete -c {} -n {}", name,
                    quoted(fmt::format("__{}_at \"{}\"", name, slashed(command.path)), true));
    for (const Command& verb : tree) {
      const std::string prefix = command.path.empty() ? "" : command.path + ' ';
      if (verb.path.empty() || !verb.path.starts_with(prefix)) continue;
      const std::string word = verb.path.substr(prefix.size());
      if (word.find(' ') != std::string::npos) continue;
      out += fmt::format("{} -f -a {} -d {}\n", here, word, quoted(verb.help, true));
    }
    if (!command.choices.empty()) {
      out += fmt::format("{} -f -a '{}'\n", here, fmt::join(command.choices, " "));
    }
    for (const CommandOption& option : command.options) {
      // Global options are offered everywhere.
      std::string line = command.path.empty() ? "complete -c " + name : here;
      for (const std::string& word : option.names) {
        line += word.starts_with("--") ? " -l " + word.substr(2) : " -s " + word.substr(1);
      }
      if (!option.choices.empty()) {
        line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (option.takes_value) {
        line += " -r";
      }
      out += line + " -d " + quoted(option.help, true) + '\n';
    }
  }
  return out;
}

void register_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("completion", std::string(kDescription));
  verb->add_option("SHELL", *shell, "The shell to make it for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(std::string(kFooter));
  const CLI::App* root = &app;
  verb->callback([shell, root, &context] {
    context.exit_code = 0;
    const std::string script = *shell == "bash"  ? bash_completion(*root)
                               : *shell == "zsh" ? zsh_completion(*root)
                                                 : fish_completion(*root);
    fmt::print("{}", script);
  });
}

}  // namespace mc::ctl
