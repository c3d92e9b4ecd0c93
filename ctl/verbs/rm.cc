// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/question.h"
#include "ctl/text/size.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

struct RmOptions {
  std::vector<std::string> keys;
  std::string prefix;
  bool all = false;
  bool yes = false;
  bool escaped = false;
  bool local = false;
};

struct Doomed {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> keys;
};

// with_keys: the caller removes the objects key by key.
std::optional<Doomed> find_doomed(Context& context, std::string_view prefix, Where where,
                                  bool with_keys) {
  Doomed out;
  const bool complete = for_each_object(context, "rm", prefix, where, [&](const auto& object) {
    auto key = unescape_key(text_field(object, "key"));
    if (!key || key->empty()) return true;
    ++out.count;
    out.bytes += number_field(object, "length");
    if (with_keys) out.keys.push_back(std::move(*key));
    return true;
  });
  if (!complete) return std::nullopt;
  return out;
}

struct Outcome {
  std::uint64_t removed = 0;
  std::vector<std::string> not_found;
  std::vector<std::string> holder_away;  // hosts that are down remove these keys when they return
  std::uint64_t hosts_away = 0;          // likewise, for a prefix
  mc_status failure = MC_OK;
  std::string failure_text;
};

Outcome remove_keys(Context& context, mc_client* client, const std::vector<std::string>& keys) {
  Outcome out;
  std::vector<mc_slice> slices(keys.size());
  std::transform(keys.begin(), keys.end(), slices.begin(), slice_of);
  std::vector<mc_status> statuses(MC_MAX_BATCH_ITEMS);
  Progress progress("removing", keys.size());
  for (std::size_t at = 0; at < keys.size() && out.failure == MC_OK; at += MC_MAX_BATCH_ITEMS) {
    const std::size_t count = std::min<std::size_t>(MC_MAX_BATCH_ITEMS, keys.size() - at);
    // A status that the call does not set counts as a failure.
    std::fill(statuses.begin(), statuses.end(), MC_INTERNAL);
    const mc_status status =
        mc_remove_batch(client, &slices[at], count, statuses.data(), timeout_ns(context));
    const std::string text = mc_last_error();
    for (std::size_t i = 0; i < count; ++i) {
      if (statuses[i] == MC_OK) {
        ++out.removed;
      } else if (statuses[i] == MC_NOT_FOUND) {
        out.not_found.push_back(keys[at + i]);
      } else if (statuses[i] == MC_HOLDER_AWAY) {
        out.holder_away.push_back(keys[at + i]);
      } else if (out.failure == MC_OK) {
        const bool named = status != MC_OK && status != MC_NOT_FOUND && status != MC_HOLDER_AWAY;
        out.failure = named ? status : statuses[i];
        out.failure_text = status == out.failure ? text : std::string();
      }
    }
    progress.update(at + count);
  }
  return out;
}

std::string others(std::size_t count) {
  return count == 0 ? "" : fmt::format(" and {} more", count);
}

Json::Value escaped_keys(const std::vector<std::string>& keys) {
  Json::Value escaped(Json::arrayValue);
  for (const std::string& key : keys) escaped.append(escape_key(key));
  return escaped;
}

void print_outcome(Context& context, const Outcome& outcome, bool by_key) {
  if (context.json) {
    Json::Value document;
    document["removed"] = Json::UInt64(outcome.removed);
    document["not_found"] = escaped_keys(outcome.not_found);
    document["holder_away"] = escaped_keys(outcome.holder_away);
    document["hosts_away"] = Json::UInt64(outcome.hosts_away);
    print_json(document);
  } else {
    fmt::print("removed {} {}\n", format_count(outcome.removed),
               outcome.removed == 1 ? "object" : "objects");
    if (outcome.hosts_away != 0) {
      fmt::print(
          "{} down; objects there are removed when the {}\n",
          outcome.hosts_away == 1 ? "1 host is" : format_count(outcome.hosts_away) + " hosts are",
          outcome.hosts_away == 1 ? "host returns" : "hosts return");
    }
    if (by_key) {
      for (const std::string& key : outcome.not_found) {
        fmt::print(stderr, "mcctl: rm: no object has the key {}\n", escape_key(key));
      }
    }
  }
  if (by_key && !outcome.not_found.empty()) context.exit_code = kExitNotFound;
  if (!outcome.holder_away.empty()) {
    report(context, "rm", kExitAway,
           {"no host that is up has the key " + escape_key(outcome.holder_away.front()) +
                others(outcome.holder_away.size() - 1) +
                "; a host that is down removes its objects when the host returns",
            "mcctl nodes shows which hosts are down; mcctl drain NODE --dead gives up a host"});
  }
}

void remove_by_key(Context& context, const std::vector<std::string>& keys, bool by_key) {
  Outcome outcome;
  if (!keys.empty()) {
    const ClientSession session(context, "rm");
    if (session.client() == nullptr) return;
    outcome = remove_keys(context, session.client(), keys);
  }
  if (outcome.failure != MC_OK) {
    report_status(context, "rm", outcome.failure, outcome.failure_text);
    if (!context.json) fmt::print("removed {} before that\n", format_count(outcome.removed));
    return;
  }
  print_outcome(context, outcome, by_key);
}

// The hosts of the cluster, or this host, remove what matches.
void remove_matching(Context& context, std::string_view prefix, Where where) {
  const auto answer = ask_agent(context, "rm", question_about(context, "rm", prefix, where));
  if (!answer) return;
  Outcome outcome;
  outcome.removed = number_field(*answer, "removed");
  outcome.hosts_away = number_field(*answer, "away");
  print_outcome(context, outcome, false);
  all_confirmed(context, "rm", *answer, "their objects are removed when they are back");
}

void remove_by_prefix(Context& context, const RmOptions& options) {
  std::string prefix;
  if (!options.prefix.empty()) {
    auto text = key_from_text(context, "rm", options.prefix, options.escaped);
    if (!text) return;
    prefix = std::move(*text);
  }
  const std::optional<bool> shared = is_shared(context, "rm");
  if (!shared) return;
  const Where where = options.local || !*shared ? Where::kHere : Where::kCluster;
  if (*shared && options.yes) return remove_matching(context, prefix, where);
  const auto doomed = find_doomed(context, prefix, where, !*shared);
  if (!doomed) return;
  const std::string things =
      fmt::format("{} objects ({}) from namespace {}", format_count(doomed->count),
                  format_bytes(doomed->bytes), context.name_space);
  if (doomed->count > 0 && !confirmed(context, "rm", things, options.yes)) return;
  if (*shared) return remove_matching(context, prefix, where);
  remove_by_key(context, doomed->keys, false);
}

void run_rm(Context& context, const RmOptions& options) {
  const int ways =
      (options.keys.empty() ? 0 : 1) + (options.prefix.empty() ? 0 : 1) + (options.all ? 1 : 0);
  if (ways != 1) {
    report_usage(context, "rm", "what to remove must be given in exactly one way",
                 "one of KEY..., --prefix TEXT, --all");
    return;
  }
  if (options.keys.empty()) return remove_by_prefix(context, options);
  if (options.local) {
    report_usage(context, "rm", "--local with a key", "--local with --prefix or --all");
    return;
  }
  const auto keys = keys_from_texts(context, "rm", options.keys, options.escaped);
  if (!keys) return;
  remove_by_key(context, *keys, true);
}

}  // namespace

Verb rm_verb(Context& context) {
  auto options = std::make_shared<RmOptions>();
  return {
      .name = "rm",
      .text = R"(Remove objects by key, by prefix, or all

Removes the objects with the given keys, or the objects whose key starts with a prefix, or all
objects of the namespace, from all hosts of the cluster. With --local, --prefix and --all remove the
copies of this host alone. If another process holds a view of a removed object, the view stays
valid and the memory is reused only after the view is released.

--prefix and --all first count the objects and ask for confirmation. If there is no terminal to
ask on, they need --yes. An object that is stored meanwhile may be removed or not.)",
      .footer = R"(EXAMPLES
  mcctl rm greeting
  mcctl rm --prefix model-a/
  mcctl --namespace chat rm --all --yes

EXIT STATUS
  0 removed (with --prefix or --all also if there were no objects); 1 failure, a host has not
  confirmed, or the answer was no; 2 wrong usage; 3 at least one of the given keys has no object;
  4 no master answers, or a host that is down may hold an object and removes it on return)",
      .options = {{"KEY", &options->keys, "The keys of the objects to remove"},
                  {"--prefix", &options->prefix,
                   "Remove the objects whose key starts with this text", "TEXT"},
                  {"--all", &options->all, "Remove all objects of the namespace"},
                  local_option(options->local),
                  {"-y,--yes", &options->yes, "Do not ask"},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_rm(context, *options); },
  };
}

}  // namespace mc::ctl
