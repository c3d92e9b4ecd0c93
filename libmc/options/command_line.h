// SPDX-License-Identifier: Apache-2.0
//
// The command line of a program with a table of options: --config FILE and a flag for
//   each option. Flags are texts; the table checks the values. --help and --man print the same
//   table.
// Threads: the main thread.
// Owns: nothing.
// Trusts: nothing of the words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libmc/options/option_row.h"

namespace mc::options {

struct Flag {
  std::string name;         // "--pool-bytes"
  std::string option;       // the name in the result: "pool_bytes"
  std::string help = {};    // empty: --help and --man do not list the flag
  std::string type = {};    // name of the value in the help: "SIZE"
  bool takes_value = true;  // false: the text in the result is "true"
  std::string meant = {};   // the present name, if this is an earlier name
};

struct CommandLine {
  std::optional<int> exit_code = {};  // set after --help, --version or wrong usage
  std::string config = {};            // --config
  std::vector<std::pair<std::string, std::string>> flags = {};  // option and text, in order
};

struct Program {
  std::string name;  // "mc-agent"
  std::string version;
  std::string summary;                  // one line without a full stop
  std::string about;                    // paragraphs
  std::string footer;                   // sections of the help and the manual page, such as SIGNALS
  std::vector<std::string> pages = {};  // related manual pages: "mcctl.1"
};

// The help, and the default unless the default is empty.
inline std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() ? help : help + " (default: " + value + ")";
}

// The flag of an earlier name. The option in the result has the name that the user gave.
inline Flag earlier_flag(std::string_view alias, std::string_view name) {
  return {.name = spelled(alias, Spelling::kFlag),
          .option = std::string(alias),
          .meant = spelled(name, Spelling::kFlag)};
}

// Prints the help, the manual page, the version or the error. Wrong usage has the exit code 2.
CommandLine parse_command_line(const Program& program, const std::vector<Flag>& flags, int argc,
                               const char* const* argv);

}  // namespace mc::options
