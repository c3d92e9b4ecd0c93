// SPDX-License-Identifier: Apache-2.0
//
// What it is: how mcctl says what went wrong: "mcctl: VERB: cause", then "  try: remedy", on
// standard
//   error; with --json also {"error": {...}} on standard output.
// Threads: the main one. Owns nothing.
#pragma once

#include <string>
#include <string_view>

#include "ctl/command.h"

namespace mc::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;

struct Failure {
  std::string cause;
  std::string remedy;
};

// Texts of the library read "cause; remedy". One without a remedy gets that of its status.
Failure explain(mc_status status, std::string_view text);

// These set context.exit_code; the first failure's code stays.
void report(Context& context, std::string_view verb, int exit_code, const Failure& failure);
void report_status(Context& context, std::string_view verb, mc_status status,
                   std::string_view text);
// The last call of this thread: its status and mc_last_error().
void report_last_error(Context& context, std::string_view verb, mc_status status);
void report_usage(Context& context, std::string_view verb, std::string cause, std::string remedy);

}  // namespace mc::ctl
