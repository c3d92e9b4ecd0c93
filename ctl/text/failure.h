// SPDX-License-Identifier: Apache-2.0
//
// The error messages of mcctl: "mcctl: VERB: cause", then "  try: remedy", on standard
//   error; with --json also {"error": {...}} on standard output.
// Threads: the main thread.
// Owns: nothing.
#pragma once

#include <string>
#include <string_view>

#include "ctl/command.h"

namespace mc::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitAway = 4;  // no master or holder answers, so nobody can tell

struct Failure {
  std::string cause;
  std::string remedy;
};

// The exit status for a failed call.
int exit_code_of(mc_status status);

// Splits a text of the library, "cause; remedy". A text without a remedy gets the usual remedy of
// the status.
Failure explain(mc_status status, std::string_view text);

// The report functions set context.exit_code; the code of the first failure stays.
void report(Context& context, std::string_view verb, int exit_code, const Failure& failure);
void report_status(Context& context, std::string_view verb, mc_status status,
                   std::string_view text);
// Reports the last call of this thread: the status and mc_last_error().
void report_last_error(Context& context, std::string_view verb, mc_status status);
void report_usage(Context& context, std::string_view verb, std::string cause, std::string remedy);

}  // namespace mc::ctl
