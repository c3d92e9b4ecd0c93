// SPDX-License-Identifier: Apache-2.0
//
// The file that includes CLI11, which takes seconds to compile, for all programs with a table.
#include "libmc/options/command_line.h"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "libmc/options/manual_page.h"
#include "libmc/options/nearest.h"

namespace mc::options {
namespace {

constexpr int kWrongUsage = 2;
constexpr const char* kConfigHelp = "TOML file with options; a flag overrides the file";
constexpr const char* kManHelp = "Print this text as a manual page in the language man(7)";
constexpr const char* kVersionHelp = "Print the version";
constexpr const char* kHelpHelp = "Print this text";

std::string manual_source(const Program& program, const std::vector<Flag>& flags) {
  ManualPage page(program.name, "8", program.summary, program.version);
  page.synopsis(program.name, "[--config FILE] [--OPTION VALUE]...");
  page.heading("DESCRIPTION");
  page.paragraphs(program.about);
  page.heading("OPTIONS");
  page.item("--config", "FILE", kConfigHelp);
  for (const Flag& flag : flags) {
    if (!flag.help.empty()) page.item(flag.name, flag.takes_value ? flag.type : "", flag.help);
  }
  page.item("--man", "", kManHelp);
  page.item("--version", "", kVersionHelp);
  page.item("-h, --help", "", kHelpHelp);
  page.sections(program.footer);
  for (const std::string& other : program.pages) {
    const std::size_t dot = other.rfind('.');
    page.see(other.substr(0, dot), other.substr(dot + 1));
  }
  return page.text();
}

// The form of mcctl's errors: cause and remedy.
int refuse(const Program& program, const std::string& cause, const std::string& remedy) {
  std::fprintf(stderr, "%s: %s\n  try: %s\n", program.name.c_str(), cause.c_str(), remedy.c_str());
  return kWrongUsage;
}

// The first option without its value. CLI11 does not name an option that the help does not list.
std::string option_without_value(const std::vector<Flag>& flags,
                                 const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto flag = std::ranges::find(flags, words[i], &Flag::name);
    const bool alone = i + 1 == words.size() || words[i + 1].starts_with("--");
    if (flag != flags.end() && flag->takes_value && alone) return flag->name;
  }
  return "--config";
}

std::string nearest_flag(const std::vector<Flag>& flags, const std::string& word) {
  std::vector<std::string> names{"--config", "--man", "--version", "--help"};
  std::vector<std::string> earlier;
  for (const Flag& flag : flags) {
    if (!flag.help.empty()) names.push_back(flag.name);
    if (!flag.meant.empty()) earlier.push_back(flag.name);
  }
  if (std::string meant = nearest(word, names); !meant.empty()) return meant;
  const auto flag = std::ranges::find(flags, nearest(word, earlier), &Flag::name);
  return flag == flags.end() ? "" : flag->meant;
}

int explain(const Program& program, const std::vector<Flag>& flags, const CLI::App& app,
            const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::string help = program.name + " --help";
  const std::vector<std::string> left = app.remaining();
  if (left.empty()) {
    const bool lacks = error.get_name() == "ArgumentMismatch";
    return refuse(program,
                  lacks ? option_without_value(flags, words) + " needs one value" : error.what(),
                  help);
  }
  const std::string word = left.front().substr(0, left.front().find('='));
  if (!word.starts_with('-')) {
    return refuse(program, options::quoted(word) + " is one argument too many", help);
  }
  const std::string meant = nearest_flag(flags, word);
  return refuse(program, "there is no option " + options::quoted(word),
                meant.empty() ? help : meant);
}

}  // namespace

CommandLine parse_command_line(const Program& program, const std::vector<Flag>& flags, int argc,
                               const char* const* argv) {
  CommandLine out;
  CLI::App app{program.summary + "\n\n" + program.about, program.name};
  app.footer(program.footer);
  app.set_help_flag("-h,--help", kHelpHelp);
  app.set_help_all_flag("--man", kManHelp);
  app.set_version_flag("--version", program.name + " " + program.version, kVersionHelp);
  app.add_option("--config", out.config, kConfigHelp)->type_name("FILE");
  for (const Flag& flag : flags) {
    const auto take = [&out, &flag](const std::string& text) {
      out.flags.emplace_back(flag.option, text);
    };
    CLI::Option* const added =
        flag.takes_value ? app.add_option_function<std::string>(flag.name, take, flag.help)
                         : app.add_flag_callback(
                               flag.name, [take] { take("true"); }, flag.help);
    if (!flag.type.empty()) added->type_name(flag.type);
    if (flag.help.empty()) added->group("");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(manual_source(program, flags).c_str(), stdout);
    out.exit_code = 0;
  } catch (const CLI::ParseError& error) {
    out.exit_code = error.get_exit_code() == 0
                        ? app.exit(error)
                        : explain(program, flags, app, error, {argv + 1, argv + argc});
  }
  return out;
}

}  // namespace mc::options
