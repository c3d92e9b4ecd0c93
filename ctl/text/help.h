// SPDX-License-Identifier: Apache-2.0
//
// What it is: --help laid out as a manual page, and the explanation of a command line that does not
//   parse.
//   A verb's description is one summary line, an empty line, and paragraphs; its footer holds
//   further sections (EXAMPLES, EXIT STATUS), each under a line in capitals.
// Threads: any. Owns nothing.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "ctl/text/failure.h"

namespace mc::ctl {

class ManualFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// The first line of a description.
std::string summary_of(const CLI::App& app);

// The innermost subcommand on the command line, and its words: "segment resize". Empty: the
// program.
const CLI::App& active_app(const CLI::App& app, std::string* words);

// REQUIRES: error was thrown by app.parse().
Failure explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace mc::ctl
