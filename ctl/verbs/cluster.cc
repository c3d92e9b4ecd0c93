// SPDX-License-Identifier: Apache-2.0
//
// The verbs that concern other hosts: cluster status, nodes, where, replicate, copy, move, drain,
// undrain, ping.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

constexpr std::chrono::milliseconds kDrainPoll{200};
constexpr std::chrono::milliseconds kTaskPoll{20};
constexpr unsigned kMaxPings = 1000;

std::optional<Json::Value> ask(Context& context, const std::string& verb,
                               const std::string& question, Json::Value request = {}) {
  request["verb"] = question;
  return ask_agent(context, verb, request);
}

void print_counters(const Json::Value& object) {
  Table table({"COUNTER", "VALUE"});
  for (const std::string& name : object.getMemberNames()) {
    table.add_row({name, format_count(number_field(object, name))});
  }
  fmt::print("{}", table.to_string());
}

void print_partitions(const Json::Value& partitions) {
  Table table({"PARTITION", "LEADER", "EPOCH", "KEYS", "STATE"});
  for (const Json::Value& partition : partitions) {
    const std::string leader = text_field(partition, "leader");
    table.add_row({text_field(partition, "partition"), leader.empty() ? "-" : leader,
                   text_field(partition, "epoch"), format_count(number_field(partition, "keys")),
                   text_field(partition, "state")});
  }
  fmt::print("\n{}", table.to_string());
}

std::string who_knows(const Json::Value& agent) {
  const bool ready = flag_field(agent, "master_ready");
  const std::uint64_t partitions = number_field(agent, "partitions");
  if (partitions > 1 && !ready) return "some masters do not know it: see the partitions below";
  if (partitions > 1) return fmt::format("the masters of all {} partitions know it", partitions);
  if (ready) return fmt::format("a master of epoch {} knows it", number_field(agent, "epoch"));
  const std::string trouble = text_field(agent, "master_trouble");
  return "no master knows it; hits and puts of this host continue" +
         (trouble.empty() ? "" : "\nwhy: " + trouble);
}

void run_cluster_status(Context& context) {
  const auto answer = ask(context, "cluster status", "cluster");
  if (!answer) return;
  if (!answer->isMember("master")) context.exit_code = kExitAway;  // no master has answered
  if (context.json) {
    print_json(*answer);
    return;
  }
  const Json::Value& agent = field(*answer, "agent");
  const Json::Value& counters = field(agent, "counters");
  const Json::Value& misses = field(agent, "misses");
  const std::uint64_t members = number_field(agent, "members");
  fmt::print("node {}, {} member{}, {}\n", text_field(agent, "node"), members,
             members == 1 ? "" : "s", who_knows(agent));
  fmt::print("fetched {} objects, {}; lent {}, kept {}; served {} to others\n",
             format_count(number_field(counters, "read_objects")),
             format_bytes(number_field(counters, "read_bytes")),
             format_count(number_field(counters, "lent")),
             format_count(number_field(counters, "copies_kept")),
             format_bytes(number_field(counters, "served_bytes")));
  std::string reasons;
  for (const std::string& reason : misses.getMemberNames()) {
    const std::uint64_t count = number_field(misses, reason);
    if (count != 0) reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", reason, count);
  }
  fmt::print("misses: {}\n", reasons.empty() ? "none" : reasons);
  const std::string problem = text_field(*answer, "master_error");
  if (!problem.empty()) fmt::print("master: {}\n", problem);
  const bool several = array_field(*answer, "partitions").size() > 1;
  if (several) print_partitions(array_field(*answer, "partitions"));
  if (!answer->isMember("master")) return;
  fmt::print("\n{}:\n", several ? "The masters together" : "The master");
  print_counters(field(*answer, "master"));
}

void run_nodes(Context& context) {
  const auto answer = ask(context, "nodes", "nodes");
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
    return;
  }
  Table table({"", "NODE", "ADDRESS", "STATE", "REACHABLE", "USED", "CAPACITY", "OBJECTS"});
  for (const Json::Value& node : array_field(*answer, "nodes")) {
    table.add_row({flag_field(node, "self") ? "*" : "", text_field(node, "node"),
                   text_field(node, "address"), text_field(node, "state"),
                   flag_field(node, "reachable") ? "yes" : "no",
                   format_bytes(number_field(node, "used_bytes")),
                   format_bytes(number_field(node, "capacity_bytes")),
                   format_count(number_field(node, "objects"))});
  }
  for (const Json::Value& node : array_field(*answer, "down")) {
    const double down_ns = 1e6 * static_cast<double>(number_field(node, "down_ms"));
    table.add_row({"", text_field(node, "node"), text_field(node, "address"),
                   "down for " + format_duration_ns(down_ns), "no", "-", "-", "-"});
  }
  fmt::print("{}", table.to_string());
}

struct KeyOptions {
  std::string key;
  bool escaped = false;
  unsigned replicas = 2;
};

void run_where(Context& context, const KeyOptions& options) {
  const auto key = key_from_text(context, "where", options.key, options.escaped);
  if (!key) return;
  Json::Value request;
  request["key"] = escape_key(*key);
  request["namespace"] = context.name_space;
  const auto answer = ask(context, "where", "where", request);
  if (!answer) return;
  const bool found = flag_field(*answer, "found");
  const bool recovering = flag_field(*answer, "recovering");
  if (context.json) {
    print_json(*answer);
  } else if (!found) {
    fmt::print("no host holds {}{}\n", escape_key(*key),
               recovering ? ", as far as the new master knows yet" : "");
  } else {
    const std::size_t holders = array_field(*answer, "holders").size();
    const std::uint64_t parts = number_field(*answer, "parts");
    const std::uint64_t wanted = number_field(*answer, "replicas_wanted");
    const std::string lies =
        parts == 0 ? fmt::format("{} of {} replicas", holders, wanted)
                   : fmt::format("in stripes: {} parts ({} missing) on {} hosts, {} wanted of each",
                                 parts, number_field(*answer, "missing_parts"), holders, wanted);
    fmt::print("{}, version {}, {}\n", format_bytes(number_field(*answer, "bytes")),
               text_field(*answer, "version"), lies);
    Table table({"", "NODE", "ADDRESS", "TIER"});
    for (const Json::Value& holder : array_field(*answer, "holders")) {
      table.add_row({flag_field(holder, "self") ? "*" : "", text_field(holder, "node"),
                     text_field(holder, "address"), text_field(holder, "tier")});
    }
    fmt::print("{}", table.to_string());
  }
  if (!found) context.exit_code = recovering ? kExitAway : kExitNotFound;
}

void run_replicate(Context& context, const KeyOptions& options) {
  const auto key = key_from_text(context, "replicate", options.key, options.escaped);
  if (!key) return;
  Json::Value request;
  request["key"] = escape_key(*key);
  request["namespace"] = context.name_space;
  request["replicas"] = options.replicas;
  const auto answer = ask(context, "replicate", "replicate", request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("{} shall have {} {}\n", escape_key(*key), options.replicas,
               options.replicas == 1 ? "holder" : "holders");
  }
}

struct NodeOptions {
  std::string node;
  bool dead = false;
  bool no_wait = false;
  unsigned count = 5;
};

struct RelocationOptions {
  KeyOptions key;
  std::vector<std::string> targets;  // of a copy
  std::string source, target;        // of a move
  bool no_wait = false;
};

// Begins a task, and waits for the end.
void run_relocation(Context& context, const std::string& verb, const RelocationOptions& options) {
  const auto key = key_from_text(context, verb, options.key.key, options.key.escaped);
  if (!key) return;
  Json::Value request;
  request["key"] = escape_key(*key);
  request["namespace"] = context.name_space;
  for (const std::string& target : options.targets) request["targets"].append(target);
  if (verb == "move") {
    request["source"] = options.source;
    request["target"] = options.target;
  }
  auto answer = ask(context, verb, verb, request);
  if (!answer) return;
  Json::Value question;
  question["task"] = field(*answer, "task");
  for (;;) {
    answer = ask(context, verb, "task", question);
    if (!answer) return;
    const std::string state = text_field(*answer, "state");
    if (options.no_wait || state == "done" || state == "failed") break;
    std::this_thread::sleep_for(kTaskPoll);  // no message tells of the end of a task
  }
  const std::string state = text_field(*answer, "state");
  if (state == "failed") context.exit_code = kExitFailed;
  if (context.json) {
    print_json(*answer);
    return;
  }
  const std::string cause = text_field(*answer, "message");
  fmt::print("{} of {}: {}{}\n", verb, escape_key(*key), state, cause.empty() ? "" : ": " + cause);
}

void run_drain(Context& context, const NodeOptions& options) {
  Json::Value request;
  request["node"] = options.node;
  request["dead"] = options.dead;
  auto answer = ask(context, "drain", "drain", request);
  if (!answer) return;
  if (!options.no_wait) {
    Progress progress("draining", 0);
    while (!flag_field(*answer, "done")) {
      progress.update(
          number_field(*answer, "copied"),
          fmt::format("{} copied, {} seen, {} found no place", number_field(*answer, "copied"),
                      number_field(*answer, "seen"), number_field(*answer, "unplaced")));
      std::this_thread::sleep_for(kDrainPoll);
      answer = ask(context, "drain", "drain", request);
      if (!answer) return;
    }
  }
  if (context.json) {
    print_json(*answer);
    return;
  }
  if (options.dead) {
    fmt::print("given up\n");
    return;
  }
  fmt::print("{}: {} copied, {} failed, {} found no place\n",
             flag_field(*answer, "done") ? "drained" : "draining", number_field(*answer, "copied"),
             number_field(*answer, "failed"), number_field(*answer, "unplaced"));
}

void run_undrain(Context& context, const NodeOptions& options) {
  Json::Value request;
  request["node"] = options.node;
  request["stop"] = true;
  const auto answer = ask(context, "undrain", "drain", request);
  if (!answer) return;
  if (context.json) {
    print_json(*answer);
  } else {
    fmt::print("serves as before; {} copied until then\n", number_field(*answer, "copied"));
  }
}

void run_ping(Context& context, const NodeOptions& options) {
  std::vector<std::uint64_t> took;
  for (unsigned i = 0; i < options.count; ++i) {
    Json::Value request;
    request["node"] = options.node;
    const auto answer = ask(context, "ping", "ping", request);
    if (!answer) {
      const auto nodes = ask(context, "ping", "nodes");
      const bool listed =
          nodes && std::ranges::any_of(array_field(*nodes, "nodes"), [&](const Json::Value& node) {
            return text_field(node, "node") == options.node ||
                   text_field(node, "address") == options.node;
          });
      fmt::print(stderr, "  this agent: answers\n  the master's list: {}\n  the peer: {}\n",
                 !nodes   ? "no answer"
                 : listed ? "has it"
                          : "does not have it",
                 listed ? "does not answer this agent" : "was not asked");
      return;
    }
    took.push_back(number_field(*answer, "round_trip_ns"));
    if (!context.json) {
      fmt::print("{}: {:.1f} us\n", options.node, static_cast<double>(took.back()) / 1000);
    }
  }
  std::sort(took.begin(), took.end());
  if (context.json) {
    Json::Value document;
    document["node"] = options.node;
    document["round_trip_p50_ns"] = Json::UInt64(took[took.size() / 2]);
    document["round_trip_min_ns"] = Json::UInt64(took.front());
    document["round_trip_max_ns"] = Json::UInt64(took.back());
    print_json(document);
  } else {
    fmt::print("median {:.1f} us, from {:.1f} to {:.1f}\n",
               static_cast<double>(took[took.size() / 2]) / 1000,
               static_cast<double>(took.front()) / 1000, static_cast<double>(took.back()) / 1000);
  }
}

std::string footer_of(const std::string& examples) {
  return "EXAMPLES\n  " + examples + R"(

EXIT STATUS
  0 success; 1 the agent, the master or the peer did not answer; 2 wrong usage; 3 not found;
  4 no master answers, or the cluster key is wrong)";
}

Option key_option(KeyOptions& options) {
  return {.name = "KEY", .value = &options.key, .help = "The key of the object", .required = true};
}

Option node_option(NodeOptions& options) {
  return {.name = "NODE",
          .value = &options.node,
          .help = "Node id or address, as mcctl nodes shows them",
          .required = true};
}

Verb cluster_verb(Context& context) {
  Verb status{
      .name = "status",
      .text = R"(Show what this agent and the masters know of each other

"fetched" counts the objects that other hosts gave to this agent; "served" counts the bytes that
this agent gave to others. "lent" counts fetched objects that were read once and not published on
this host. "kept" counts fetched objects that were asked for again and are replicas here since
then. Misses are counted by reason:
  nobody          no host holds the key
  recovering      a new master does not yet know all objects
  master_away     no master answered
  holders_failed  all holders were asked in vain
  late            the deadline passed
  no_room         the pool is full of objects that must stay
  corrupt         the bytes did not match their checksum

If the keys are divided into several partitions, each partition is listed with the master that
leads it. STATE is ok, recovering (not all agents have reported to a new leader) or no leader.
Without a leader, the keys of the partition are not found on other hosts.)",
      .footer = footer_of("mcctl cluster status --json"),
      .run = [&context] { run_cluster_status(context); },
  };
  return {
      .name = "cluster",
      .text = R"(Show the cluster of this host's agent

"mcctl cluster status" shows whether a master knows the agent, what the agent fetched from other
hosts and why fetches missed, and what the master knows.)",
      .footer = footer_of("mcctl cluster status"),
      .verbs = {status},
  };
}

Verb nodes_verb(Context& context) {
  return {
      .name = "nodes",
      .text = R"(List the members of the cluster

STATE is ok, suspected (not heard for 600 ms), draining, or down (not heard for a second), with the
time since then. REACHABLE tells whether this host's agent has a lane to the node, or would try to
open one. * marks this host's agent. With --json, clock_ahead_ms is the wall clock of the node less
this host's, as the master heard the clocks.)",
      .footer = footer_of("mcctl nodes"),
      .run = [&context] { run_nodes(context); },
  };
}

Verb where_verb(Context& context) {
  auto options = std::make_shared<KeyOptions>();
  return {
      .name = "where",
      .text = R"(Show which hosts hold an object

Asks the master. The version identifies the put that made the object; all holders have the same
version. The tier is "pool", or "disk" if the object has left the pool of that host for a disk.)",
      .footer = footer_of("mcctl where greeting"),
      .options = {key_option(*options), escaped_option(options->escaped)},
      .run = [options, &context] { run_where(context, *options); },
  };
}

Verb replicate_verb(Context& context) {
  auto options = std::make_shared<KeyOptions>();
  return {
      .name = "replicate",
      .text = R"(Change the number of hosts that shall hold an object

Run this verb on a host that holds the object (see "mcctl where"). An object on a disk of the host is read
into the pool first. The master then has the object copied to other hosts, which takes a moment.)",
      .footer = footer_of("mcctl replicate greeting --replicas 3"),
      .options = {key_option(*options),
                  {"--replicas",
                   &options->replicas,
                   "Number of hosts that shall hold the object",
                   "COUNT",
                   {{1, MC_MAX_REPLICAS}}},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_replicate(context, *options); },
  };
}

Verb copy_verb(Context& context) {
  auto options = std::make_shared<RelocationOptions>();
  return {
      .name = "copy",
      .text = R"(Copy an object to other hosts

The key's master orders each host to copy the object from a host that holds the object. Eviction may
take a copy away like any other object. To keep a number of copies, use "mcctl replicate". Objects in
stripes cannot be copied.)",
      .footer = footer_of("mcctl copy greeting 10.0.0.7:7401 10.0.0.8:7401"),
      .options = {key_option(options->key),
                  {.name = "NODE",
                   .value = &options->targets,
                   .help = "Node ids or addresses, as mcctl nodes shows them",
                   .required = true},
                  {"--no-wait", &options->no_wait, "Return as soon as the task has begun"},
                  escaped_option(options->key.escaped)},
      .run = [options, &context] { run_relocation(context, "copy", *options); },
  };
}

Verb move_verb(Context& context) {
  auto options = std::make_shared<RelocationOptions>();
  return {
      .name = "move",
      .text = R"(Move an object from one host to another

The source drops the object only when the master knows the copy at the target. Objects in stripes
cannot be moved.)",
      .footer = footer_of("mcctl move greeting 10.0.0.7:7401 10.0.0.8:7401"),
      .options = {key_option(options->key),
                  {.name = "FROM",
                   .value = &options->source,
                   .help = "Node id or address of a host that holds the object",
                   .required = true},
                  {.name = "TO",
                   .value = &options->target,
                   .help = "Node id or address of the host that shall hold the object",
                   .required = true},
                  {"--no-wait", &options->no_wait, "Return as soon as the task has begun"},
                  escaped_option(options->key.escaped)},
      .run = [options, &context] { run_relocation(context, "move", *options); },
  };
}

Verb drain_verb(Context& context) {
  auto options = std::make_shared<NodeOptions>();
  return {
      .name = "drain",
      .text = R"(Move all objects of a node to other nodes

Objects without a replica elsewhere are copied first. The node releases an object only when the
master knows the copy, so nothing is lost. Meanwhile the node takes no new objects from other
nodes. Objects on the disks of the node move, too, into the pools of other nodes. After the drain, the
agent of the node can be stopped, and its disks have no objects. "mcctl undrain" cancels a drain.

--dead gives up a node that is down: mcctl nodes shows the node no longer, and the removal of a key
that no host has ends with "no such object" again. If the node comes back, the objects of the node may be
lost. A node that is stopped after its drain is given up at once.)",
      .footer = footer_of("mcctl drain 10.0.0.7:7401\n  mcctl drain 10.0.0.7:7401 --dead"),
      .options = {node_option(*options),
                  {"--dead", &options->dead, "Give up a node that is down and will not come back"},
                  {"--no-wait", &options->no_wait, "Return as soon as the drain has begun"}},
      .run = [options, &context] { run_drain(context, *options); },
  };
}

Verb undrain_verb(Context& context) {
  auto options = std::make_shared<NodeOptions>();
  return {
      .name = "undrain",
      .text = R"(Cancel the drain of a node

The node serves as before and takes new objects again. Objects that have moved to other nodes stay
there.)",
      .footer = footer_of("mcctl undrain 10.0.0.7:7401"),
      .options = {node_option(*options)},
      .run = [options, &context] { run_undrain(context, *options); },
  };
}

Verb ping_verb(Context& context) {
  auto options = std::make_shared<NodeOptions>();
  return {
      .name = "ping",
      .text = R"(Measure the round trip to another agent

The round trip goes from this host's agent over the data network to the other agent and back. If
it fails, mcctl prints which step failed: this agent, the master's list, the peer.)",
      .footer = footer_of("mcctl ping 10.0.0.7:7401 --count 100"),
      .options = {node_option(*options),
                  {"--count", &options->count, "Number of round trips", "COUNT", {{1, kMaxPings}}}},
      .run = [options, &context] { run_ping(context, *options); },
  };
}

}  // namespace

std::vector<Verb> cluster_verbs(Context& context) {
  return {cluster_verb(context),   nodes_verb(context),   where_verb(context),
          replicate_verb(context), copy_verb(context),    move_verb(context),
          drain_verb(context),     undrain_verb(context), ping_verb(context)};
}

}  // namespace mc::ctl
