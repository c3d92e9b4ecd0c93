// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/failure.h"

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

std::string_view usual_remedy(mc_status status) {
  switch (status) {
    case MC_INVALID_ARGUMENT:
      return "mcctl VERB --help shows what is allowed";
    case MC_TOO_LARGE:
      return "mcctl segment list shows the pool's size, mcctl segment resize SIZE enlarges it";
    case MC_TIMEOUT:
      return "allow more time with --timeout-ms; mcctl status shows whether the agent is at work";
    case MC_CANCELLED:
    case MC_BUSY:
      return "run it again in a moment";
    case MC_NO_SPACE:
      return "mcctl status shows what holds the memory; mcctl segment resize SIZE adds some";
    case MC_QUOTA_EXCEEDED:
      return "mcctl status shows what each session has reserved";
    case MC_UNSUPPORTED:
      return "mcctl config shows what this agent is set up for";
    case MC_NOT_FOUND:
      return "mcctl ls lists what is there; --namespace chooses where to look";
    case MC_CORRUPT:
      return "mcctl rm the object and put it again; the agent's log has more";
    case MC_SESSION_LOST:
    case MC_CLOSED:
    case MC_FORKED:
      return "run it again; the agent's log says why the session ended";
    case MC_PERMISSION_DENIED:
      return "run it as the user of the agent, or join the group of its socket; mcctl doctor "
             "checks";
    case MC_VERSION_MISMATCH:
      return "install mcctl and mc-agent from the same release; mcctl doctor shows both versions";
    case MC_NO_SUCH_NAMESPACE:
      return "mcctl status lists the namespaces; --namespace names one";
    case MC_AGENT_UNAVAILABLE:
      return "start mc-agent, or name its socket with --agent or MC_AGENT; mcctl doctor checks "
             "both";
    case MC_NO_MEMORY:
      return "mcctl doctor shows the limits of this host";
    default:
      return "mcctl doctor checks this host; the agent's log has more";
  }
}

}  // namespace

int exit_code_of(mc_status status) {
  switch (status) {
    case MC_OK:
      return kExitOk;
    case MC_NOT_FOUND:
      return kExitNotFound;
    case MC_INVALID_ARGUMENT:
      return kExitUsage;
    case MC_HOLDER_AWAY:
    case MC_DISK_AWAY:
    case MC_WRONG_KEY:
    case MC_NO_MASTER:
    case MC_NOT_ADVERTISED:
      return kExitAway;
    default:
      return kExitFailed;
  }
}

Failure explain(mc_status status, std::string_view text) {
  if (text.empty()) text = mc_status_text(status);
  const std::size_t split = text.rfind("; ");
  if (split == std::string_view::npos || split + 2 == text.size()) {
    return {std::string(text), std::string(usual_remedy(status))};
  }
  return {std::string(text.substr(0, split)), std::string(text.substr(split + 2))};
}

void report(Context& context, std::string_view verb, int exit_code, const Failure& failure) {
  if (context.exit_code == kExitOk) context.exit_code = exit_code;
  // If both streams go to one place, the earlier output must come first.
  std::fflush(stdout);
  fmt::print(stderr, "mcctl: {}{}{}\n", verb, verb.empty() ? "" : ": ", printable(failure.cause));
  if (!failure.remedy.empty()) fmt::print(stderr, "  try: {}\n", printable(failure.remedy));
  if (!context.json) return;
  Json::Value document;
  Json::Value& error = document["error"];
  error["verb"] = std::string(verb);
  error["cause"] = failure.cause;
  error["try"] = failure.remedy;
  error["exit_code"] = exit_code;
  print_json_line(document);
}

void report_status(Context& context, std::string_view verb, mc_status status,
                   std::string_view text) {
  Failure failure = explain(status, text);
  if (const std::size_t at = failure.remedy.find("VERB"); at != std::string::npos) {
    failure.remedy.replace(at, 4, verb);
  }
  report(context, verb, exit_code_of(status), failure);
}

void report_last_error(Context& context, std::string_view verb, mc_status status) {
  report_status(context, verb, status, mc_last_error());
}

void report_usage(Context& context, std::string_view verb, std::string cause, std::string remedy) {
  report(context, verb, kExitUsage, {std::move(cause), std::move(remedy)});
}

}  // namespace mc::ctl
