// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/question.h"

#include <cstdio>

#include <fmt/core.h>
#include <unistd.h>

#include "ctl/text/failure.h"

namespace mc::ctl {

bool confirmed(Context& context, std::string_view verb, const std::string& things, bool yes) {
  if (yes) return true;
  if (isatty(STDIN_FILENO) != 1) {
    report_usage(context, verb,
                 fmt::format("this would remove {}, and there is no terminal to ask on", things),
                 "add --yes");
    return false;
  }
  fmt::print(stderr, "remove {}? [y/N] ", things);
  std::fflush(stderr);
  char line[16] = {};
  if (std::fgets(line, sizeof line, stdin) != nullptr && (line[0] == 'y' || line[0] == 'Y')) {
    return true;
  }
  report(context, verb, kExitFailed, {"nothing was removed: the answer was not y", ""});
  return false;
}

}  // namespace mc::ctl
