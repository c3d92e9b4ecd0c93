// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/core.h>

#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "ctl/verbs/objects.h"

namespace mc::ctl {
namespace {

constexpr std::string_view kDescription =
    "List the objects of a namespace\n"
    "\n"
    "One object a line, in no particular order: length, version, pin, extents, group, key. Bytes\n"
    "of a key outside printable ASCII, and '%', are printed as %XX; --escaped of the other verbs\n"
    "reads that back. The list is fetched page by page and never held in memory; objects that "
    "come\n"
    "or go meanwhile may be in it or not. Listing does not count as use: it keeps no object from\n"
    "being evicted.";

constexpr std::string_view kFooter =
    "EXAMPLES\n"
    "  mcctl ls --limit 20\n"
    "  mcctl ls --prefix model-a/ --keys | xargs -d '\\n' mcctl exists --escaped\n"
    "  mcctl ls --json | jq -r .key     one JSON object a line\n"
    "\n"
    "EXIT STATUS\n"
    "  0 listed, even if there was nothing; 1 failed; 2 wrong usage";

struct LsOptions {
  std::string prefix;
  std::uint64_t limit = 0;
  bool keys_only = false;
  bool escaped = false;
};

// Fixed columns: a table's widths would be known only after the last page.
void print_object(const Json::Value& object) {
  const std::string pin = text_field(object, "pin");
  const std::string group = text_field(object, "group");
  fmt::print("{:>10}  {:>8}  {:<4}  {:>7}  {:>8}  {}\n",
             format_bytes(number_field(object, "length")), number_field(object, "version"),
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
  for_each_object(context, "ls", prefix, [&](const Json::Value& object) {
    if (context.json) {
      print_json_line(object);
    } else if (options.keys_only) {
      fmt::print("{}\n", printable(text_field(object, "key")));
    } else {
      if (count == 0) {
        fmt::print("{:>10}  {:>8}  {:<4}  {:>7}  {:>8}  {}\n", "LENGTH", "VERSION", "PIN",
                   "EXTENTS", "GROUP", "KEY");
      }
      print_object(object);
    }
    ++count;
    return options.limit == 0 || count < options.limit;
  });
}

}  // namespace

void register_ls(CLI::App& app, Context& context) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* verb = app.add_subcommand("ls", std::string(kDescription));
  verb->add_option("--prefix", options->prefix, "Only keys that start with this")
      ->type_name("TEXT");
  verb->add_option("--limit", options->limit, "At most so many objects; 0: all")
      ->type_name("COUNT")
      ->capture_default_str();
  verb->add_flag("--keys", options->keys_only, "Print the keys alone");
  verb->add_flag("--escaped", options->escaped, "The prefix is given with %XX escapes");
  verb->footer(std::string(kFooter));
  verb->callback([options, &context] { run_ls(context, *options); });
}

}  // namespace mc::ctl
