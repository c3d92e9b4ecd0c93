// SPDX-License-Identifier: Apache-2.0
//
// What it is: a shell's completion script, made from the tree of verbs and options.
// Threads: any; pure functions. Owns nothing.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace mc::ctl {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace mc::ctl
