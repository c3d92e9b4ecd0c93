// SPDX-License-Identifier: Apache-2.0
//
// What it is: one row per option: its name, what it accepts, its help and where its value lies. All
//   sources of options are parsed by these rows and all listings are printed from them; a new
//   option is a member of Options and a row in option_table.cc.
// Threads: any; the tables are made once and never change.
// Trusts: its callers; text was checked by the row's domain before set() sees it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/options/options.h"
#include "libmc/options/option_row.h"

namespace mc::agent {

using namespace mc::options;  // NOLINT: the words of all tables of options

// What all namespaces and arenas may have; pools are bounded by arenas besides.
inline constexpr std::uint64_t kMinPoolBytes = 1ull << 20;
inline constexpr std::uint64_t kMaxPoolBytesPerArena = 1ull << 40;
inline constexpr std::uint32_t kMaxArenas = 64;

const std::vector<OptionRow<Options>>& agent_rows();
const std::vector<OptionRow<NamespaceOptions>>& namespace_rows();

// load_options() with the file's text in hand; name stands for it in errors.
Result<LoadedOptions> load_options_text(
    std::string_view toml, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& flags, const char* const* environment);

}  // namespace mc::agent
