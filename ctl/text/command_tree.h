// SPDX-License-Identifier: Apache-2.0
//
// What it is: the verbs and options of a CLI11 application as plain values, for completion scripts.
// Threads: any; pure functions. Owns its values.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace mc::ctl {

struct CommandOption {
  std::vector<std::string> names;  // with their dashes; long ones first
  std::string help;                // one line
  bool takes_value = false;
  std::vector<std::string> choices;  // what the value must be one of; empty: anything
};

struct Command {
  std::string path;  // "" for the program, "segment resize"
  std::string help;
  std::vector<std::string> verbs;  // its subcommands
  std::vector<CommandOption> options;
  std::vector<std::string> choices;  // what its first argument must be one of; empty: anything
};

// The program first, then every verb, each before its own subcommands.
std::vector<Command> command_tree(const CLI::App& app);

}  // namespace mc::ctl
