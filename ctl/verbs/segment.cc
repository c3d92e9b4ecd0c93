// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

struct ResizeOptions {
  std::string size;
  std::string wait;
  bool no_wait = false;
};

bool settled(const Json::Value& segment) {
  const Json::Value& said = field(segment, "settled");
  if (said.isBool()) return said.asBool();
  return number_field(segment, "reserved_bytes") == number_field(segment, "target_bytes");
}

std::string state_text(const Json::Value& segment) {
  const std::string problem = text_field(segment, "problem");
  if (!problem.empty()) return problem;
  if (settled(segment)) return "settled";
  const std::uint64_t now_bytes = number_field(segment, "reserved_bytes");
  return now_bytes > number_field(segment, "target_bytes") ? "shrinking" : "growing";
}

std::string segment_text(const Json::Value& segments) {
  Table table(
      {"NAMESPACE", "NOW", "TARGET", "USED", "RESIDENT", "MAX", "ARENAS", "HUGE PAGES", "STATE"});
  for (const Json::Value& segment : segments) {
    table.add_row({text_field(segment, "namespace"), bytes_field(segment, "reserved_bytes"),
                   bytes_field(segment, "target_bytes"), bytes_field(segment, "used_bytes"),
                   bytes_field(segment, "resident_bytes"), bytes_field(segment, "max_bytes"),
                   format_count(number_field(segment, "arenas")),
                   flag_field(segment, "huge_pages") ? "yes" : "no", state_text(segment)});
  }
  return table.to_string();
}

void run_list(Context& context) {
  Json::Value request;
  request["verb"] = "segments";
  const auto answer = ask_agent(context, "segment list", request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("{}", segment_text(array_field(*answer, "segments")));
  }
}

// The current state of the segment of the context's namespace; null after a reported failure.
Json::Value ask_segment(Context& context) {
  Json::Value request;
  request["verb"] = "segments";
  const auto answer = ask_agent(context, "segment resize", request);
  if (!answer) return {};
  for (const Json::Value& entry : array_field(*answer, "segments")) {
    if (text_field(entry, "namespace") == context.name_space) return entry;
  }
  report_status(context, "segment resize", MC_NO_SUCH_NAMESPACE, "");
  return {};
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

// The reasons why a shrinking pool waits.
std::string waits_text(const Json::Value& segment) {
  constexpr Json::ArrayIndex kMostNamed = 8;
  const Json::Value& waits = field(segment, "waits_for");
  if (!waits.isObject()) return "what is left is pinned or being read";
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const Json::Value& sessions = array_field(waits, "sessions");
  for (Json::ArrayIndex i = 0; i < std::min(sessions.size(), kMostNamed); ++i) {
    add(fmt::format("{} reserved by session {} (pid {}, {})",
                    bytes_field(sessions[i], "reserved_bytes"), number_field(sessions[i], "id"),
                    number_field(sessions[i], "pid"), text_field(sessions[i], "label")));
  }
  if (sessions.size() > kMostNamed) {
    add(fmt::format("reservations of {} more sessions", sessions.size() - kMostNamed));
  }
  if (number_field(waits, "being_read_bytes") > 0) {
    add(bytes_field(waits, "being_read_bytes") + " that clients are reading");
  }
  return text.empty() ? "it is still moving what lies there, or that has hard pins"
                      : "it waits for " + text;
}

// Reports a growth that stopped, or a wait that ended too early.
void report_unfinished(Context& context, const Json::Value& segment) {
  const std::string now = bytes_field(segment, "reserved_bytes");
  const std::string target = bytes_field(segment, "target_bytes");
  if (const std::string problem = text_field(segment, "problem"); !problem.empty()) {
    Failure failure = explain(MC_NO_MEMORY, problem);
    failure.cause =
        fmt::format("the pool stopped growing at {} of {}: {}", now, target, failure.cause);
    report(context, "segment resize", kExitFailed, failure);
    return;
  }
  const bool shrinks = state_text(segment) == "shrinking";
  report(context, "segment resize", kExitFailed,
         {fmt::format("the pool has {} and not yet {}{}", now, target,
                      shrinks ? ": " + waits_text(segment) : ""),
          "mcctl segment list shows whether it got there, mcctl status who reads objects"});
}

// Asks until the pool has its target size. Returns the last answer; null after a reported failure.
Json::Value wait_for_target(Context& context, Json::Value segment, std::uint64_t wait_ns) {
  constexpr std::chrono::milliseconds kAskEvery{50};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_ns);
  const std::uint64_t start_bytes = number_field(segment, "reserved_bytes");
  const std::uint64_t target_bytes = number_field(segment, "target_bytes");
  Progress progress("resizing " + context.name_space, distance(start_bytes, target_bytes));
  while (true) {
    const bool stopped = !text_field(segment, "problem").empty();
    if (settled(segment) && !stopped) return segment;
    progress.update(distance(start_bytes, number_field(segment, "reserved_bytes")),
                    bytes_field(segment, "reserved_bytes") + " of " + format_bytes(target_bytes));
    if (stopped || std::chrono::steady_clock::now() >= deadline) {
      progress.finish();
      report_unfinished(context, segment);
      return {};
    }
    std::this_thread::sleep_for(kAskEvery);
    segment = ask_segment(context);
    if (segment.isNull()) return segment;
  }
}

// --wait, else --timeout-ms, else ten minutes. Nullopt after a reported failure.
std::optional<std::uint64_t> longest_wait_ns(Context& context, const ResizeOptions& options) {
  constexpr std::uint64_t kUsualWaitNs = 600ull * 1000000000;
  constexpr std::uint64_t kLongestWaitNs = 30ull * 86400 * 1000000000;
  if (options.wait.empty()) return context.timeout_ms != 0 ? timeout_ns(context) : kUsualWaitNs;
  const auto wait_ns = parse_duration_ns(options.wait);
  if (wait_ns && *wait_ns <= kLongestWaitNs) return wait_ns;
  report_usage(context, "segment resize",
               fmt::format("--wait: '{}' is not a duration", options.wait),
               "a number and a unit, such as 30s, 10m or 2h, at most 30d");
  return std::nullopt;
}

void run_resize(Context& context, const ResizeOptions& options) {
  constexpr std::string_view kVerb = "segment resize";
  const auto size_bytes = parse_bytes(options.size);
  if (!size_bytes || *size_bytes == 0) {
    report_usage(context, kVerb, fmt::format("'{}' is not a size", options.size),
                 "a number and a unit, such as 512MiB, 4GiB or 1.5G");
    return;
  }
  const auto wait_ns = longest_wait_ns(context, options);
  if (!wait_ns) return;
  Json::Value request;
  request["verb"] = "resize";
  request["namespace"] = context.name_space;
  request["pool_bytes"] = Json::UInt64(*size_bytes);
  const auto answer = ask_agent(context, std::string(kVerb), request);
  if (!answer) return;
  const Json::Value segment =
      options.no_wait ? *answer : wait_for_target(context, *answer, *wait_ns);
  if (segment.isNull()) return;
  if (context.json) {
    print_json(segment);
    return;
  }
  // The agent rounds to whole pages or chunks, and another user may have changed the target.
  fmt::print("{}: now {}, target {}, resident {}\n", context.name_space,
             bytes_field(segment, "reserved_bytes"), bytes_field(segment, "target_bytes"),
             bytes_field(segment, "resident_bytes"));
}

}  // namespace

Verb segment_verb(Context& context) {
  auto options = std::make_shared<ResizeOptions>();
  Verb list{
      .name = "list",
      .text = R"(List the segments: size, target, use

NOW is the memory of the pool, TARGET the size that the agent works towards, USED the bytes in
objects, RESIDENT the memory that the system has really given, and MAX the largest size that the
segment can get without a restart of the agent. STATE is "settled", "growing", "shrinking", or
the reason why growing has stopped.)",
      .footer = R"(EXAMPLES
  mcctl segment list
  mcctl segment list --json

EXIT STATUS
  0 listed; 1 the agent did not answer; 2 wrong usage)",
      .run = [&context] { run_list(context); },
  };
  Verb resize{
      .name = "resize",
      .text = R"(Grow or shrink a pool while it serves

A growing pool takes memory from the system and stops if there is too little. A shrinking pool
moves or evicts the objects at its end and gives the pages back to the system. Objects that are
being read or are pinned delay the shrinking until they are released.

The size outlives a crash and an upgrade of the agent, until another pool_bytes is configured. A
stop of the agent frees the pool, and the next agent starts with pool_bytes.

The verb waits until the pool has the new size. If you interrupt the wait, or if the wait
expires, the agent continues; "mcctl segment list" shows its progress.)",
      .footer = R"(EXAMPLES
  mcctl segment resize 4GiB
  mcctl segment resize 1.5G --wait 1m
  mcctl --namespace chat segment resize 512MiB --no-wait

EXIT STATUS
  0 the pool has the new size (with --no-wait: the agent began); 1 it has not; 2 wrong usage)",
      .options = {{.name = "SIZE",
                   .value = &options->size,
                   .help = "The new size: bytes, or a number with KiB, MiB, GiB, TiB",
                   .required = true},
                  {"--wait", &options->wait,
                   "The longest wait for the new size; default: --timeout-ms if given, else 10m",
                   "DURATION"},
                  {"--no-wait", &options->no_wait, "Return as soon as the agent has begun"}},
      .run = [options, &context] { run_resize(context, *options); },
  };
  return {
      .name = "segment",
      .text = R"(List or resize the memory of the agent while it serves

A segment is the pool of one namespace on this host. "mcctl segment list" shows all segments;
"mcctl segment resize SIZE" changes the segment of --namespace.)",
      .footer = R"(EXAMPLES
  mcctl segment list
  mcctl segment resize 8GiB
  mcctl --namespace chat segment resize 512MiB --no-wait)",
      .verbs = {list, resize},
  };
}

}  // namespace mc::ctl
