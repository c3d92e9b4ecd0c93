// SPDX-License-Identifier: Apache-2.0
//
// Questions to the user before a verb destroys something.
// Threads: the main thread.
// Owns: nothing.
// Trusts: nothing; any answer but y or Y is no.
#pragma once

#include <string>
#include <string_view>

#include "ctl/command.h"

namespace mc::ctl {

// Asks "remove THINGS? [y/N]" on standard error and reads a line of standard input. yes: does not ask.
// False: the answer was no, or standard input is no terminal. Both were reported.
bool confirmed(Context& context, std::string_view verb, const std::string& things, bool yes);

}  // namespace mc::ctl
