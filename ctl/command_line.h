// SPDX-License-Identifier: Apache-2.0
//
// The parser of mcctl's command line: declarations and words in, values and a run out.
// Threads: the main thread. Owns nothing.
// Trusts: nothing of the words.
#pragma once

#include <string>
#include <vector>

#include "ctl/command.h"

namespace mc::ctl {

// Parses the words, without the program's name, and runs the named verb. Prints the manual
// page for --help and for "help VERB". Returns the exit code.
int run_command_line(Verb& program, Context& context, std::vector<std::string> words);

}  // namespace mc::ctl
