// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

struct ExistsOptions {
  std::vector<std::string> keys;
  bool escaped = false;
};

void run_exists(Context& context, const ExistsOptions& options) {
  const auto keys = keys_from_texts(context, "exists", options.keys, options.escaped);
  if (!keys) return;
  const ClientSession session(context, "exists");
  if (session.client() == nullptr) return;
  std::vector<mc_slice> slices(keys->size());
  std::transform(keys->begin(), keys->end(), slices.begin(), slice_of);
  std::vector<mc_status> statuses(keys->size(), MC_NOT_FOUND);
  for (std::size_t at = 0; at < slices.size(); at += MC_MAX_BATCH_ITEMS) {
    const std::size_t count = std::min<std::size_t>(MC_MAX_BATCH_ITEMS, slices.size() - at);
    const mc_status status = mc_exists_batch(session.client(), &slices[at], count, &statuses[at]);
    if (status != MC_OK) {
      report_last_error(context, "exists", status);
      return;
    }
  }
  Json::Value document;
  mc_status away = MC_OK;
  for (std::size_t i = 0; i < keys->size(); ++i) {
    const bool there = statuses[i] == MC_OK;
    const bool known = there || statuses[i] == MC_NOT_FOUND;
    if (!there && known) context.exit_code = kExitNotFound;
    if (!known && away == MC_OK) away = statuses[i];
    if (context.json) {
      Json::Value entry;
      entry["key"] = escape_key((*keys)[i]);
      entry["exists"] = known ? Json::Value(there) : Json::Value();
      if (!known) entry["why"] = mc_status_name(statuses[i]);
      document["keys"].append(entry);
    } else {
      fmt::print("{} {}\n", there ? "yes" : known ? "no " : "?  ", escape_key((*keys)[i]));
    }
  }
  if (context.json) print_json(document);
  if (away == MC_OK) return;
  if (!context.json) report_status(context, "exists", away, {});
  context.exit_code = exit_code_of(away);
}

}  // namespace

Verb exists_verb(Context& context) {
  auto options = std::make_shared<ExistsOptions>();
  return {
      .name = "exists",
      .text = R"(Tell which keys have an object

Prints "yes KEY" or "no KEY" for each key, in the order given. In a cluster the verb asks the masters
about keys that this host does not have, and prints "? KEY" if no master answers. The verb does not
read the bytes. An object may be evicted right after.)",
      .footer = R"(EXAMPLES
  mcctl exists greeting && echo there
  mcctl exists block/1 block/2 block/3 --json

EXIT STATUS
  0 all keys exist; 1 failure; 2 wrong usage; 3 at least one key does not exist; 4 no master answers)",
      .options = {{.name = "KEY",
                   .value = &options->keys,
                   .help = "The keys to look for",
                   .required = true},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_exists(context, *options); },
  };
}

}  // namespace mc::ctl
