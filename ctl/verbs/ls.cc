// SPDX-License-Identifier: Apache-2.0

#include <fmt/core.h>

#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "ctl/verbs/objects.h"

namespace mc::ctl {
namespace {

struct LsOptions {
  std::string prefix;
  std::uint64_t limit = 0;
  bool keys_only = false;
  bool escaped = false;
  bool local = false;
};

// The columns are fixed, because a Table would know its widths only after the last page.
void print_listed(const Json::Value& object, bool first) {
  if (first) fmt::print("{:>10}  {}\n", "LENGTH", "KEY");
  fmt::print("{:>10}  {}\n", format_bytes(number_field(object, "length")),
             printable(text_field(object, "key")));
}

void print_object(const Json::Value& object, bool first) {
  if (first) {
    fmt::print("{:>10}  {:>8}  {:<4}  {:>7}  {:>8}  {}\n", "LENGTH", "VERSION", "PIN", "EXTENTS",
               "GROUP", "KEY");
  }
  const std::string pin = text_field(object, "pin");
  const std::string group = text_field(object, "group");
  fmt::print("{:>10}  {:>8}  {:<4}  {:>7}  {:>8}  {}\n",
             format_bytes(number_field(object, "length")), printable(text_field(object, "version")),
             printable(pin.empty() || pin == "none" ? "-" : pin), number_field(object, "extents"),
             printable(group.empty() || group == "0" ? "-" : group),
             printable(text_field(object, "key")));
}

void run_ls(Context& context, const LsOptions& options) {
  std::string prefix = options.prefix;
  if (!prefix.empty()) {
    auto key = key_from_text(context, "ls", prefix, options.escaped);
    if (!key) return;
    prefix = std::move(*key);
  }
  std::uint64_t count = 0;
  const Where where = options.local ? Where::kHere : Where::kCluster;
  for_each_object(context, "ls", prefix, where, [&](const Json::Value& object) {
    if (context.json) {
      print_json_line(object);
    } else if (options.keys_only) {
      fmt::print("{}\n", printable(text_field(object, "key")));
    } else if (field(object, "version").isNull()) {
      print_listed(object, count == 0);
    } else {
      print_object(object, count == 0);
    }
    ++count;
    return options.limit == 0 || count < options.limit;
  });
}

}  // namespace

Verb ls_verb(Context& context) {
  auto options = std::make_shared<LsOptions>();
  return {
      .name = "ls",
      .text = R"(List the objects of a namespace

Prints one object per line, also of the objects on local disks. In a cluster: length and key, of all
hosts, in the order of the keys. With --local, or without a cluster: length, version, pin, extents,
group and key, of this host, in no particular order; version - is an object on a disk. In a key, the
bytes outside printable ASCII, and '%', are printed as %XX. The option --escaped of the other verbs
reads such keys. mcctl fetches the list page by page and never holds all of the list in memory. If
an object is stored or removed meanwhile, the list may contain the object or not. Listing does not
count as use of an object: it does not delay eviction.)",
      .footer = R"(EXAMPLES
  mcctl ls --limit 20
  mcctl ls --prefix model-a/ --keys | xargs -d '\n' mcctl exists --escaped
  mcctl ls --json | jq -r .key     one JSON object per line

EXIT STATUS
  0 listed, also if there are no objects; 1 failure, or a host of the cluster has not answered;
  2 wrong usage)",
      .options = {{"--prefix", &options->prefix, "List only keys that start with this text",
                   "TEXT"},
                  {"--limit", &options->limit, "The largest number of objects to list; 0: all",
                   "COUNT"},
                  {"--keys", &options->keys_only, "Print only the keys"},
                  local_option(options->local),
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_ls(context, *options); },
  };
}

}  // namespace mc::ctl
