// SPDX-License-Identifier: Apache-2.0
//
// The name that a user probably meant: of an option, a verb or a flag.
// Threads: any; pure functions.
// Trusts: nothing; nearest() ignores long words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mc::options {

// The number of insertions, deletions, replacements and swaps of neighbours that turn a into b
// (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate at the least distance. If that is more than a third of the word's letters (and
// more than 1): a candidate that starts with the word. Empty: there is neither.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mc::options
