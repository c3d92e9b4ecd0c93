// SPDX-License-Identifier: Apache-2.0
//
// The texts that mcctl makes from the declarations of its verbs: manual pages,
//   completion scripts, and the name that a user probably meant.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing of the user's words; nearest() ignores long words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
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

// The page of the last verb in the path. REQUIRES: the path is not empty.
std::string manual_page(const std::vector<const Verb*>& path);

std::string bash_completion(const Verb& program);
std::string zsh_completion(const Verb& program);
std::string fish_completion(const Verb& program);

// The number of insertions, deletions, replacements and swaps of neighbours that turn a into b
// (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate at the least distance. If that is more than a third of the word's letters (and
// more than 1): a candidate that starts with the word. Empty: there is neither.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mc::ctl
