// SPDX-License-Identifier: Apache-2.0
//
// Takes the options of a program from its sources: a file, the environment and flags. A later source
//   replaces the values of an earlier one. A relative path starts at the folder of its file, or at
//   the working directory.
// Threads: one thread.
// Owns: the options and the source of each value.
// Trusts: nothing of the texts. Each value is checked against the domain of its row.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libmc/options/option_file.h"
#include "libmc/options/option_row.h"

namespace mc::options {

// Variables that Kubernetes and Docker set for a service whose name is the program's name.
inline bool is_service_link(std::string_view name) {
  return name == "PORT" || name == "SERVICE_HOST" || name.starts_with("PORT_") ||
         name.starts_with("SERVICE_PORT");
}

template <typename Owner>
class OptionLoader {
 public:
  // rows: static. prefix: of variables, such as "MC_AGENT_". table: the name of tables that the file
  // may hold beside the options; empty: none.
  explicit OptionLoader(const Rows<Owner>& rows, std::string_view prefix = {},
                        std::string_view table = {})
      : rows_(rows), prefix_(prefix), table_(table), origins_(rows.size()), names_(rows.size()) {}

  Owner& values() { return values_; }
  const Owner& values() const { return values_; }
  // By row.
  const std::vector<Origin>& origins() const { return origins_; }
  // REQUIRES: an option has the name.
  const Origin& origin_of(std::string_view name) const {
    return origins_[index_of(*find_row(rows_, name))];
  }

  Status add_table(const FileTable& table) {
    for (const FileEntry& entry : table.entries) {
      const Origin origin{"file", entry.where};
      const auto* const row = find_row(rows_, entry.name);
      if (row == nullptr) {
        return unknown_option(rows_, entry.name, Spelling::kName, entry.where, {}, table_);
      }
      const bool is_mode = row->domain.kind == ValueKind::kOctal && entry.is_integer;
      if (is_mode && entry.octal_text.empty()) {
        return {MC_INVALID_ARGUMENT, about(row->name, origin) + ": " + entry.text +
                                         " is a decimal number; write \"0" + entry.text +
                                         "\" or 0o" + entry.text};
      }
      const Status status =
          take(*row, entry.name, is_mode ? entry.octal_text : entry.text, origin, table.folder);
      if (!status.ok()) return status;
    }
    return {};
  }

  // An empty variable counts as unset, as in shells and unit files.
  Status add_environment(const char* const* environment) {
    for (; environment != nullptr && *environment != nullptr; ++environment) {
      const std::string_view entry(*environment);
      const std::size_t equals = entry.find('=');
      if (!entry.starts_with(prefix_) || equals == std::string_view::npos) continue;
      const std::string_view variable = entry.substr(0, equals);
      const std::string_view text = entry.substr(equals + 1);
      const std::string_view upper = variable.substr(prefix_.size());
      if (is_service_link(upper)) continue;
      std::string name;
      for (const char c : upper) {
        name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      }
      const auto* const row = find_row(rows_, name);
      if (row == nullptr || spelled(name, Spelling::kVariable, prefix_) != variable) {
        return unknown_option(rows_, name, Spelling::kVariable, "environment", prefix_);
      }
      if (text.empty()) continue;
      const Status status =
          take(*row, name, text, {"environment", "environment " + std::string(variable)}, folder_);
      if (!status.ok()) return status;
    }
    return {};
  }

  // Names of options, with dashes or underscores, and texts.
  Status add_flags(const std::vector<std::pair<std::string, std::string>>& flags) {
    for (const auto& [given, text] : flags) {
      std::string name = given;
      std::replace(name.begin(), name.end(), '-', '_');
      const Status status =
          add(name, text, Spelling::kFlag, {"flag", "flag " + spelled(name, Spelling::kFlag)});
      if (!status.ok()) return status;
    }
    return {};
  }

  // Takes one value. An error about an unknown name has the origin only if the name does not show it.
  Status add(std::string_view name, std::string_view text, Spelling spelling,
             const Origin& origin) {
    if (const auto* const row = find_row(rows_, name)) {
      return take(*row, name, text, origin, folder_);
    }
    return unknown_option(rows_, name, spelling,
                          spelling == Spelling::kName ? origin.where : std::string(), prefix_);
  }

 private:
  std::size_t index_of(const OptionRow<Owner>& row) const {
    return static_cast<std::size_t>(&row - rows_.data());
  }
  Status take(const OptionRow<Owner>& row, std::string_view name, std::string_view text,
              const Origin& origin, const std::string& folder) {
    Origin& last = origins_[index_of(row)];
    std::string& last_name = names_[index_of(row)];
    if (last.source == origin.source && last_name != name) {
      return {MC_INVALID_ARGUMENT, std::string(row.alias) + " is an earlier name of " +
                                       std::string(row.name) + ", and both are given (" +
                                       last.where + "; " + origin.where + "); remove " +
                                       std::string(row.alias)};
    }
    last = origin;
    last_name = name;
    return assign(row, text, origin, values_, folder);
  }

  const Rows<Owner>& rows_;
  const std::string_view prefix_, table_;
  Owner values_;
  const std::string folder_ = working_folder();
  std::vector<Origin> origins_;
  std::vector<std::string> names_;  // by row: the name that the last source gave
};

}  // namespace mc::options
