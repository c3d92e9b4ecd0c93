// SPDX-License-Identifier: Apache-2.0
//
// The texts that mcctl makes from the declarations of its verbs: manual pages and completion
//   scripts.
// Threads: any; pure functions. Owns nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ctl/command.h"

namespace mc::ctl {

// A path holds the program and the verbs inside each other, outermost first. words_of() joins the
// names: "mcctl segment resize".
std::string words_of(const std::vector<const Verb*>& path);
// The names of an option, with the dashes, in the order of the declaration.
std::vector<std::string> names_of(const Option& option);
// The first line of the verb's text.
std::string summary_of(const Verb& verb);

// The page of the last verb in the path, for a terminal and in the language man(7). REQUIRES: the
// path is not empty.
std::string manual_page(const std::vector<const Verb*>& path);
std::string manual_source(const std::vector<const Verb*>& path);
// "mcctl-segment-resize"
std::string manual_name(const std::vector<const Verb*>& path);

std::string bash_completion(const Verb& program);
std::string zsh_completion(const Verb& program);
std::string fish_completion(const Verb& program);

}  // namespace mc::ctl
