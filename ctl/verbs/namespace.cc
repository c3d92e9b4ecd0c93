// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "agent/pool/policy/policy.h"
#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/question.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"

namespace mc::ctl {
namespace {

struct NamespaceVerbOptions {
  std::string name;
  std::string size;
  std::string quota;
  std::string policy;
  bool isolated = false;
  bool local = false;
  bool yes = false;
};

// The size in bytes. Nullopt after a reported failure.
std::optional<std::uint64_t> size_from_text(Context& context, std::string_view verb,
                                            const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) {
    report_usage(context, verb, fmt::format("'{}' is not a size", text),
                 "a number and a unit, such as 512MiB, 4GiB or 1.5G");
    return std::nullopt;
  }
  return bytes;
}

// The same for a quota: 0 stands for "none".
std::optional<std::uint64_t> quota_from_text(Context& context, std::string_view verb,
                                             const std::string& text) {
  if (text == "none") return 0;
  return size_from_text(context, verb, text);
}

std::string quota_text(const Json::Value& entry) {
  return number_field(entry, "capacity_bytes") == 0 ? "none" : bytes_field(entry, "capacity_bytes");
}

std::string namespaces_text(const Json::Value& namespaces) {
  Table table(
      {"NAMESPACE", "MODE", "SHARED", "POLICY", "POOL", "QUOTA", "USED", "OBJECTS", "FROM"});
  for (const Json::Value& entry : namespaces) {
    table.add_row({text_field(entry, "name"), text_field(entry, "mode"),
                   flag_field(entry, "clustered") ? "cluster" : "host", text_field(entry, "policy"),
                   bytes_field(entry, "pool_bytes"), quota_text(entry),
                   bytes_field(entry, "used_bytes"), format_count(number_field(entry, "objects")),
                   flag_field(entry, "configured") ? "configuration" : "mcctl"});
  }
  return table.to_string();
}

void run_namespace_list(Context& context) {
  Json::Value request;
  request["verb"] = "status";
  const auto answer = ask_agent(context, "namespace list", request);
  if (!answer) return;
  const Json::Value& namespaces = array_field(*answer, "namespaces");
  if (context.json) {
    Json::Value document;
    document["namespaces"] = namespaces;
    print_json(document);
  } else {
    fmt::print("{}", namespaces_text(namespaces));
  }
}

void run_namespace_create(Context& context, const NamespaceVerbOptions& options) {
  const std::string verb = "namespace create";
  const auto bytes = size_from_text(context, verb, options.size);
  if (!bytes) return;
  const auto quota = quota_from_text(context, verb, options.quota);
  if (!quota) return;
  Json::Value request;
  request["verb"] = "create_namespace";
  request["name"] = options.name;
  request["pool_bytes"] = u64(*bytes);
  request["capacity_bytes"] = u64(*quota);
  request["policy"] = options.policy;
  request["mode"] = options.isolated ? "isolated" : "direct";
  request["clustered"] = !options.local;
  const auto answer = ask_agent(context, verb, request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("created {}, {}\n", options.name, bytes_field(*answer, "target_bytes"));
  }
}

// The namespace in the agent's status; null after a reported failure. sessions: the sessions of the
// namespace, of which a status lists 256 at most.
Json::Value find_namespace(Context& context, const std::string& verb, const std::string& name,
                           std::string& sessions) {
  Json::Value request;
  request["verb"] = "status";
  const auto answer = ask_agent(context, verb, request);
  if (!answer) return {};
  const Json::Value& listed = array_field(*answer, "sessions");
  const auto count = std::ranges::count_if(
      listed, [&](const Json::Value& session) { return text_field(session, "namespace") == name; });
  const bool all = number_field(*answer, "sessions_open") <= listed.size();
  sessions = fmt::format("{}{}", count, all ? "" : " or more");
  for (const Json::Value& entry : array_field(*answer, "namespaces")) {
    if (text_field(entry, "name") == name) return entry;
  }
  report_status(context, verb, MC_NO_SUCH_NAMESPACE,
                fmt::format("this agent has no namespace '{}'; mcctl namespace list", name));
  return {};
}

void run_namespace_delete(Context& context, const NamespaceVerbOptions& options) {
  const std::string verb = "namespace delete";
  std::string sessions;
  const Json::Value found = find_namespace(context, verb, options.name, sessions);
  if (found.isNull()) return;
  const std::string objects =
      fmt::format("namespace {} with {} objects ({})", options.name,
                  format_count(number_field(found, "objects")), bytes_field(found, "used_bytes"));
  const std::string things = fmt::format("{} and {} open sessions", objects, sessions);
  // The agent refuses to delete a configured namespace: no question then.
  if (!flag_field(found, "configured") && !confirmed(context, verb, things, options.yes)) return;
  Json::Value request;
  request["verb"] = "drop_namespace";
  request["name"] = options.name;
  const auto answer = ask_agent(context, verb, request);
  if (!answer) return;
  if (context.json) {
    Json::Value document;
    document["deleted"] = options.name;
    document["objects"] = field(found, "objects");
    document["sessions_ended"] = field(*answer, "sessions_ended");
    print_json(document);
  } else {
    fmt::print("deleted {}; {} sessions ended\n", objects, number_field(*answer, "sessions_ended"));
  }
}

void run_namespace_quota(Context& context, const NamespaceVerbOptions& options) {
  const std::string verb = "namespace quota";
  const auto quota = quota_from_text(context, verb, options.quota);
  if (!quota) return;
  Json::Value request;
  request["verb"] = "set_capacity";
  request["namespace"] = options.name;
  request["capacity_bytes"] = u64(*quota);
  const auto answer = ask_agent(context, verb, request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("{}: quota {}, {} of live objects\n", options.name, quota_text(*answer),
               bytes_field(*answer, "live_bytes"));
  }
}

Option name_option(NamespaceVerbOptions& options) {
  return {.name = "NAME", .value = &options.name, .help = "The namespace", .required = true};
}

Verb namespace_list_verb(Context& context) {
  return {
      .name = "list",
      .text = R"(List the namespaces of this host

POOL is the size of the pool, QUOTA the upper limit of the bytes in live objects, USED the bytes in
use. SHARED tells whether the agent's cluster shares the namespace, or this host alone has it. FROM
tells whether the configuration or mcctl made the namespace.)",
      .footer = R"(EXAMPLES
  mcctl namespace list
  mcctl namespace list --json | jq '.namespaces[].name'

EXIT STATUS
  0 listed; 1 the agent did not answer; 2 wrong usage)",
      .run = [&context] { run_namespace_list(context); },
  };
}

Verb namespace_create_verb(Context& context) {
  auto options = std::make_shared<NamespaceVerbOptions>();
  options->quota = "none";
  const std::vector<std::string_view> policies = agent::policy_names();
  if (!policies.empty()) options->policy = std::string(policies.front());
  return {
      .name = "create",
      .text = R"(Make a namespace with a pool of its own

The namespace exists at once on this host. If the agent is in a cluster, the namespace is shared with
the hosts that have a namespace of this name; with --local, this host alone has the namespace.

The namespace outlives a crash and an upgrade of the agent. A stop of the agent frees all pools:
afterwards only the namespaces of the configuration ([[namespace]] in agent.toml) exist. For the same
reason only their evicted objects go to the disks of tier_paths.)",
      .footer = R"(EXAMPLES
  mcctl namespace create chat --size 8GiB
  mcctl namespace create batch --size 4GiB --quota 3GiB --local

EXIT STATUS
  0 created; 1 failure, such as too little memory; 2 wrong usage, or the name exists)",
      .options = {name_option(*options),
                  {.name = "--size",
                   .value = &options->size,
                   .help = "The size of the pool",
                   .type = "SIZE",
                   .required = true},
                  {"--quota", &options->quota,
                   "The upper limit of the bytes in live objects, or none", "SIZE"},
                  {.name = "--policy",
                   .value = &options->policy,
                   .help = "The eviction policy",
                   .choices = {policies.begin(), policies.end()}},
                  {"--isolated", &options->isolated,
                   "Clients read copies of the objects, and cannot write to the pool"},
                  {"--local", &options->local, "Share the namespace with no other host"}},
      .run = [options, &context] { run_namespace_create(context, *options); },
  };
}

Verb namespace_delete_verb(Context& context) {
  auto options = std::make_shared<NamespaceVerbOptions>();
  return {
      .name = "delete",
      .text = R"(Delete a namespace of this host, and its objects

The sessions of the namespace end, and the memory of the pool goes back to the system. Other hosts of
the cluster keep their objects of a namespace of this name. A namespace of the configuration cannot be
deleted: remove the namespace from the configuration, and restart the agent.

The verb asks for confirmation. Without a terminal to ask on, it needs --yes.)",
      .footer = R"(EXAMPLES
  mcctl namespace delete batch
  mcctl namespace delete batch --yes --json

EXIT STATUS
  0 deleted; 1 no such namespace, or the answer was no; 2 wrong usage, or the configuration defines
  the namespace)",
      .options = {name_option(*options), {"-y,--yes", &options->yes, "Do not ask"}},
      .run = [options, &context] { run_namespace_delete(context, *options); },
  };
}

Verb namespace_quota_verb(Context& context) {
  auto options = std::make_shared<NamespaceVerbOptions>();
  return {
      .name = "quota",
      .text = R"(Limit the bytes of a namespace's objects

A namespace with a quota evicts objects as soon as its live objects have more bytes, even if the pool
has room. A lower quota evicts at once, a little with each turn of the agent. The quota is the option
capacity_bytes of the namespace; session_quota_bytes is another limit, of each session. The quota
outlives a crash and an upgrade of the agent, until another capacity_bytes is configured.)",
      .footer = R"(EXAMPLES
  mcctl namespace quota chat 6GiB
  mcctl namespace quota chat none

EXIT STATUS
  0 set; 1 no such namespace; 2 wrong usage)",
      .options = {name_option(*options),
                  {.name = "SIZE",
                   .value = &options->quota,
                   .help = "The largest number of bytes in live objects, or none",
                   .required = true}},
      .run = [options, &context] { run_namespace_quota(context, *options); },
  };
}

}  // namespace

Verb namespace_verb(Context& context) {
  return {
      .name = "namespace",
      .text = R"(List, make, limit or delete the namespaces of this host

A namespace has objects, a pool and users of its own. These verbs concern this host alone: in a
cluster, each host has a pool for each namespace.)",
      .footer = R"(EXAMPLES
  mcctl namespace list
  mcctl namespace create chat --size 8GiB
  mcctl namespace quota chat 6GiB
  mcctl namespace delete chat)",
      .verbs = {namespace_list_verb(context), namespace_create_verb(context),
                namespace_delete_verb(context), namespace_quota_verb(context)},
  };
}

}  // namespace mc::ctl
