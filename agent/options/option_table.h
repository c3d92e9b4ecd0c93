// SPDX-License-Identifier: Apache-2.0
//
// One row per option with the name, the accepted values, the help text and the place of
//   the value. These rows parse all sources of options and print all listings. A new option is a
//   member of Options and a row in option_table.cc.
// Threads: any; the tables are made once and never change.
// Trusts: its callers. The row's domain checks a text before set() sees the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/options/options.h"
#include "libmc/options/option_row.h"

namespace mc::agent {

using namespace mc::options;  // NOLINT: the words of all tables of options

// Limits of all namespaces and arenas; the number of arenas bounds a pool further.
inline constexpr std::uint64_t kMinPoolBytes = 1ull << 20;
inline constexpr std::uint64_t kMaxPoolBytesPerArena = 1ull << 40;
inline constexpr std::uint32_t kMaxArenas = 64;

const std::vector<OptionRow<Options>>& agent_rows();
const std::vector<OptionRow<NamespaceOptions>>& namespace_rows();

// load_options() for a file whose text is already read; errors call the file `name`.
Result<LoadedOptions> load_options_text(
    std::string_view toml, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& flags, const char* const* environment);

}  // namespace mc::agent
