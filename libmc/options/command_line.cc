// SPDX-License-Identifier: Apache-2.0
//
// The file that includes CLI11, which takes seconds to compile, for all programs with a table.
#include "libmc/options/command_line.h"

#include <CLI/CLI.hpp>

namespace mc::options {

CommandLine parse_command_line(const Program& program, const std::vector<Flag>& flags, int argc,
                               const char* const* argv) {
  constexpr int kWrongUsage = 2;
  CommandLine out;
  CLI::App app{program.about, program.name};
  app.add_option("--config", out.config, "TOML file with options");
  app.set_version_flag("--version", program.name + " " + program.version);
  for (const Flag& flag : flags) {
    const auto take = [&out, &flag](const std::string& text) {
      out.flags.emplace_back(flag.option, text);
    };
    CLI::Option* const added =
        flag.takes_value ? app.add_option_function<std::string>(flag.name, take, flag.help)
                         : app.add_flag_callback(
                               flag.name, [take] { take("true"); }, flag.help);
    if (flag.help.empty()) added->group("");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    out.exit_code = app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return out;
}

}  // namespace mc::options
