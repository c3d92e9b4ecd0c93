// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/clock.h"
#include "libmc/base/key_text.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

struct TraceOptions {
  std::string key;
  bool escaped = false;
};

// By the agent's names of a fetch's stages.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTracedStages{
    {{"locate", "ask the master"}, {"ask", "ask a holder"}, {"read", "read the bytes"}}};

std::uint64_t count_of(const Json::Value& durations) {
  std::uint64_t sum = 0;
  for (const Json::Value& count : array_field(durations, "counts"))
    sum += count.isUInt64() ? count.asUInt64() : 0;
  return sum;
}

// The durations of the one fetch between two looks at the agent. Empty if other fetches ended meanwhile.
Json::Value stages_between(const Json::Value& before, const Json::Value& after) {
  Json::Value stages(Json::objectValue);
  for (const auto& [stage, text] : kTracedStages) {
    const Json::Value& was = field(field(field(before, "cluster"), "stages"), stage);
    const Json::Value& is = field(field(field(after, "cluster"), "stages"), stage);
    const std::uint64_t fetches = count_of(is) - count_of(was);
    if (fetches > 1) return Json::Value(Json::objectValue);
    if (fetches == 0) continue;
    stages[std::string(stage) + "_ns"] =
        u64(number_field(is, "sum_ns") - number_field(was, "sum_ns"));
  }
  return stages;
}

// The reason of the one miss between two looks at the agent. Empty if there were others.
std::string miss_between(const Json::Value& before, const Json::Value& after) {
  const Json::Value& was = field(field(before, "cluster"), "misses");
  const Json::Value& is = field(field(after, "cluster"), "misses");
  std::string reason;
  std::uint64_t misses = 0;
  if (!is.isObject()) return {};
  for (const std::string& name : is.getMemberNames()) {
    const std::uint64_t more = number_field(is, name) - number_field(was, name);
    if (more != 0) reason = name;
    misses += more;
  }
  return misses == 1 ? reason : "";
}

// Reads the object as a client does. out: the outcome and the durations.
void trace_get(Context& context, mc_client* client, std::string_view key, Json::Value& out) {
  const auto look = [&] {
    Json::Value request;
    request["verb"] = "status";
    auto answer = client::admin_call(socket_path(context), request, timeout_ns(context));
    return answer ? std::move(*answer) : Json::Value();
  };
  const Json::Value before = look();
  mc_view view{};
  const std::uint64_t started_ns = now_ns();
  const mc_status status = mc_get_view(client, slice_of(key), &view);
  const std::uint64_t took_ns = now_ns() - started_ns;
  const std::string why = status == MC_OK ? "" : mc_last_error();
  const Json::Value after = look();
  out["status"] = mc_status_name(status);
  out["took_ns"] = u64(took_ns);
  if (status == MC_OK) {
    out["from"] = view.fetched != 0 ? "another host" : "this host";
    out["length"] = u64(view.length);
    out["version"] = std::to_string(view.version);
    out["extents"] = view.span_count;
  } else {
    out["cause"] = explain(status, why).cause;
    out["miss"] = miss_between(before, after);
  }
  out["stages"] = stages_between(before, after);
  mc_view_release(&view);
}

std::string ago_text(const Json::Value& object, std::string_view name) {
  return format_duration_ns(1e6 * static_cast<double>(number_field(object, name)));
}

// The object of this host, or the departure of the latest object with the key.
std::string here_text(const Json::Value& here) {
  std::string out = flag_field(here, "here") ? "this host   has the object"
                                             : "this host   has no object with this key";
  const Json::Value& departure = field(here, "departure");
  if (departure.isObject()) {
    out += fmt::format("; one was {} {} ago", text_field(departure, "reason"),
                       ago_text(departure, "ago_ms"));
  } else if (!flag_field(here, "here")) {
    out += fmt::format("; none has left in the last {}", ago_text(here, "departures_known_for_ms"));
  }
  return out;
}

std::string holders_text(const Json::Value& where) {
  if (where.isNull()) return "cluster     none: this namespace is of this host alone";
  if (where.isMember("error")) {
    return fmt::format("cluster     no answer: {}", text_field(field(where, "error"), "cause"));
  }
  if (!flag_field(where, "found")) {
    return flag_field(where, "recovering")
               ? "cluster     no host holds the key, as far as the new master knows yet"
               : "cluster     no host holds the key";
  }
  std::string holders;
  for (const Json::Value& holder : array_field(where, "holders")) {
    holders += (holders.empty() ? "" : ", ") + text_field(holder, "address") +
               (flag_field(holder, "self") ? " (this host)" : "") +
               (text_field(holder, "tier") == "disk" ? " (on a disk)" : "");
  }
  const std::uint64_t parts = number_field(where, "parts");
  return fmt::format("cluster     {} of {} replicas at {}{}; the master answered in {}",
                     array_field(where, "holders").size(), number_field(where, "replicas_wanted"),
                     holders, parts == 0 ? "" : fmt::format(", in {} parts", parts),
                     format_duration_ns(static_cast<double>(number_field(where, "took_ns"))));
}

std::string get_text(const Json::Value& get) {
  const std::string took = format_duration_ns(static_cast<double>(number_field(get, "took_ns")));
  std::string out;
  if (text_field(get, "status") == mc_status_name(MC_OK)) {
    out = fmt::format("a get       {} in {} from {}, version {}\n", bytes_field(get, "length"),
                      took, text_field(get, "from"), text_field(get, "version"));
  } else {
    const std::string miss = text_field(get, "miss");
    out = fmt::format("a get       {} after {}: {}{}\n", text_field(get, "status"), took,
                      printable(text_field(get, "cause")),
                      miss.empty() ? "" : " (miss: " + miss + ")");
  }
  for (const auto& [stage, text] : kTracedStages) {
    const Json::Value& took_ns = field(field(get, "stages"), std::string(stage) + "_ns");
    if (took_ns.isNull()) continue;
    out += fmt::format("  {:<16}{}\n", text,
                       format_duration_ns(static_cast<double>(took_ns.asUInt64())));
  }
  return out;
}

// The master's answer; null if no cluster shares the namespace.
Json::Value trace_where(Context& context, const std::string& key) {
  Json::Value request;
  request["verb"] = "where";
  request["key"] = escape_key(key);
  request["namespace"] = context.name_space;
  const std::uint64_t started_ns = now_ns();
  auto answer = client::admin_call(socket_path(context), request, timeout_ns(context));
  if (answer) {
    (*answer)["took_ns"] = u64(now_ns() - started_ns);
    return std::move(*answer);
  }
  const bool alone =
      answer.error().code() == MC_UNSUPPORTED || answer.error().code() == MC_NO_SUCH_NAMESPACE;
  if (alone) return {};
  Json::Value out;
  out["error"]["status"] = mc_status_name(answer.error().code());
  out["error"]["cause"] = explain(answer.error().code(), answer.error().text()).cause;
  return out;
}

void run_trace(Context& context, const TraceOptions& options) {
  const auto key = key_from_text(context, "trace", options.key, options.escaped);
  if (!key) return;
  const ClientSession session(context, "trace");
  if (session.client() == nullptr) return;
  Json::Value request;
  request["verb"] = "trace";
  request["key"] = escape_key(*key);
  request["namespace"] = context.name_space;
  const auto here = ask_agent(context, "trace", request);
  if (!here) return;
  Json::Value document;
  document["key"] = escape_key(*key);
  document["here"] = *here;
  document["cluster"] = trace_where(context, *key);
  trace_get(context, session.client(), *key, document["get"]);
  if (context.json) {
    print_json(document);
  } else {
    fmt::print("key         {}\n{}\n{}\n{}", escape_key(*key), printable(here_text(*here)),
               printable(holders_text(document["cluster"])), get_text(document["get"]));
  }
  const std::string status = text_field(document["get"], "status");
  for (const mc_status one : {MC_NOT_FOUND, MC_HOLDER_AWAY, MC_DISK_AWAY, MC_WRONG_KEY,
                              MC_NO_MASTER, MC_NOT_ADVERTISED}) {
    if (status == mc_status_name(one)) context.exit_code = exit_code_of(one);
  }
  if (status != mc_status_name(MC_OK) && context.exit_code == kExitOk) {
    context.exit_code = kExitFailed;
  }
}

}  // namespace

Verb trace_verb(Context& context) {
  auto options = std::make_shared<TraceOptions>();
  return {
      .name = "trace",
      .text = R"(Tell where an object is, why a get misses, and what a get costs

The verb asks this host's agent for the object. If an object with the key has left this host, the agent
tells when and why: evicted, removed or damaged. The agent remembers the last 16,384 objects that left
each namespace. Then the verb asks the master for the holders, and reads the object as a client does. The
times are those of this get; the stages are shown if no other fetch ended meanwhile. A get can change the
place of an object: this host keeps an object of another host that is read twice.

The reasons of misses are those of "mcctl cluster status".)",
      .footer = R"(EXAMPLES
  mcctl trace greeting
  mcctl trace --escaped 'block%00%01' --json

EXIT STATUS
  0 the get found the object; 1 failure; 2 wrong usage; 3 no object has this key;
  4 no master or holder answers)",
      .options = {{.name = "KEY",
                   .value = &options->key,
                   .help = "The key of the object",
                   .required = true},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_trace(context, *options); },
  };
}

}  // namespace mc::ctl
