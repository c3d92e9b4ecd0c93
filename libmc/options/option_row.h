// SPDX-License-Identifier: Apache-2.0
//
// A table of options. A row has an option's name, accepted values, help and member.
//   Functions fill rows from a file's entries, the environment and flags. Errors name the option,
//   its source and the accepted values, or the nearest name.
// Threads: any; tables are constant.
// Trusts: nothing. set() sees only values of the row's domain.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "libmc/options/nearest.h"
#include "libmc/options/option_file.h"
#include "libmc/options/option_value.h"

namespace mc::options {

template <typename Owner>
struct OptionRow {
  std::string_view name;
  ValueDomain domain;
  OptionValue (*get)(const Owner&);
  void (*set)(Owner&, const OptionValue&);
  std::string_view help;
  std::string_view alias = {};  // an earlier name of the option, still accepted

  std::string text_of(const Owner& owner) const { return format_value(domain, get(owner)); }
};

template <auto kMember, typename Owner>
OptionValue get_member(const Owner& owner) {
  using Member = std::decay_t<decltype(owner.*kMember)>;
  if constexpr (std::is_same_v<Member, std::uint32_t>) {
    return std::uint64_t{owner.*kMember};
  } else {
    return owner.*kMember;
  }
}

template <auto kMember, typename Owner>
void set_member(Owner& owner, const OptionValue& value) {
  using Member = std::decay_t<decltype(owner.*kMember)>;
  if constexpr (std::is_same_v<Member, std::uint32_t>) {
    owner.*kMember = static_cast<std::uint32_t>(std::get<std::uint64_t>(value));
  } else {
    owner.*kMember = std::get<Member>(value);
  }
}

template <auto kMember, typename Owner>
OptionRow<Owner> row_of(std::string_view name, ValueDomain domain, std::string_view help,
                        std::string_view alias = {}) {
  return {name, std::move(domain), &get_member<kMember, Owner>, &set_member<kMember, Owner>, help,
          alias};
}

// The source of a value. where: for errors, "environment MC_AGENT_ARENAS".
struct Origin {
  std::string source = "default";
  std::string where = "default";
};

// An option as its source spells it: pool_bytes, --pool-bytes, MC_AGENT_POOL_BYTES (with the
// program's prefix).
enum class Spelling { kName, kFlag, kVariable };

inline std::string spelled(std::string_view name, Spelling spelling, std::string_view prefix = {}) {
  std::string out(name);
  if (spelling == Spelling::kFlag) {
    std::replace(out.begin(), out.end(), '_', '-');
    return "--" + out;
  }
  if (spelling == Spelling::kVariable) {
    for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return std::string(prefix) + out;
  }
  return out;
}

inline std::string about(std::string_view option, const Origin& origin) {
  return std::string(option) + " (" + origin.where + ")";
}

template <typename Owner>
using Rows = std::vector<OptionRow<Owner>>;

template <typename Owner>
const OptionRow<Owner>* find_row(const Rows<Owner>& rows, std::string_view name) {
  for (const auto& row : rows) {
    if (row.name == name || (!row.alias.empty() && row.alias == name)) return &row;
  }
  return nullptr;
}

// table: the name of tables that the file may also hold.
template <typename Owner>
Status unknown_option(const Rows<Owner>& rows, std::string_view name, Spelling spelling,
                      const std::string& where, std::string_view prefix = {},
                      std::string_view table = {}) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  if (!table.empty()) names.emplace_back(table);
  std::string near = nearest(name, names);
  if (near.empty()) {
    std::vector<std::string> aliases;
    for (const auto& row : rows) aliases.emplace_back(row.alias);
    near = nearest(name, aliases);
    if (!near.empty()) near = find_row(rows, near)->name;
  }
  const std::string meant =
      near.empty() ? "--help lists the options"
      : !table.empty() && near == table
          ? "did you mean [[" + near + "]]?"
          : "did you mean " + options::quoted(spelled(near, spelling, prefix)) + "?";
  return {MC_INVALID_ARGUMENT, "unknown option " +
                                   options::quoted(spelled(name, spelling, prefix)) +
                                   (where.empty() ? "" : " (" + where + ")") + "; " + meant};
}

// folder: the folder of relative paths; empty: a path must be absolute.
template <typename Owner>
Status assign(const OptionRow<Owner>& row, std::string_view text, const Origin& origin,
              Owner& owner, const std::string& folder = {}) {
  const auto value = parse_value(row.domain, text, folder);
  if (!value) {
    const bool homeless = row.domain.kind == ValueKind::kPath && folder.empty();
    return {MC_INVALID_ARGUMENT, std::string(row.name) + " = " + options::quoted(text) + " (" +
                                     origin.where + "): not " + row.domain.accepts() +
                                     (homeless ? "; write an absolute path" : "")};
  }
  row.set(owner, *value);
  return {};
}

}  // namespace mc::options
