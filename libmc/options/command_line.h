// SPDX-License-Identifier: Apache-2.0
//
// The command line of a program with a table of options: --config FILE and a flag for
//   each option. Flags are texts; the table checks the values.
// Threads: the main thread.
// Owns: nothing.
// Trusts: nothing of the words.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mc::options {

struct Flag {
  std::string name;         // "--pool-bytes"
  std::string option;       // the name in the result: "pool_bytes"
  std::string help = {};    // empty: the help does not list the flag
  bool takes_value = true;  // false: the text in the result is "true"
};

struct CommandLine {
  std::optional<int> exit_code = {};  // set after --help, --version or wrong usage
  std::string config = {};            // --config
  std::vector<std::pair<std::string, std::string>> flags = {};  // option and text, in order
};

struct Program {
  std::string name;  // "mc-agent"
  std::string version;
  std::string about;  // first text of the help
};

// Prints the help, the version or the error. Wrong usage has the exit code 2.
CommandLine parse_command_line(const Program& program, const std::vector<Flag>& flags, int argc,
                               const char* const* argv);

}  // namespace mc::options
