// SPDX-License-Identifier: Apache-2.0
//
// What it is: the name that somebody who mistyped one probably meant.
// Threads: any; pure functions. Owns nothing. Trusts nothing: long words are refused.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mc::ctl {

// Insertions, deletions, replacements and swaps of neighbours between the two (optimal string
// alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate at the least distance, or one that word is the beginning of; empty when none is
// near: farther than a third of the word's letters, and than 1.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mc::ctl
