// SPDX-License-Identifier: Apache-2.0
//
// The parser of a configuration file: names and texts, each with its place. The parser
//   knows TOML but no option.
// Threads: any; values.
// Trusts: nothing. The text is bounded before parsing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::options {

inline constexpr std::size_t kMaxConfigBytes = 1 << 20;

struct FileEntry {
  std::string name;
  std::string text;        // numbers in decimal, arrays with commas
  std::string octal_text;  // for a number written as 0o660
  bool is_integer = false;
  std::string where;  // "/etc/mc/agent.toml, line 3"
};

struct FileTable {
  std::string where;
  std::string folder;  // folder of the file, for relative paths
  std::vector<FileEntry> entries;
};

struct OptionFile {
  FileTable top;
  std::vector<FileTable> namespaces;  // [[namespace]], in the file's order
};

// The absolute folder of a file, or the working directory. Empty: the working directory is unknown.
std::string folder_of(const std::string& file);
std::string working_folder();
// Reads the file. Errors: MC_INVALID_ARGUMENT if the file cannot be read or is longer than allowed.
Result<std::string> read_config(const std::string& path);
// name: the file's path, for relative paths in the file and for errors, which give line and column.
Result<OptionFile> parse_config(std::string_view toml, const std::string& name);

}  // namespace mc::options
