// SPDX-License-Identifier: Apache-2.0

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

struct StatOptions {
  std::string key;
  bool escaped = false;
};

void print_stat_json(const std::string& key, const mc_stat_info& info) {
  Json::Value document;
  document["key"] = escape_key(key);
  document["length"] = Json::UInt64(info.length);
  document["here"] = info.extent_count != 0;
  if (info.extent_count == 0) return print_json(document);
  // Identifiers of 64 bits are texts: many JSON readers keep only 53 bits of a number.
  document["version"] = std::to_string(info.version);
  document["checksum"] = fmt::format("{:016x}", info.checksum);
  document["pin"] = std::string(pin_name(info.pin));
  document["pin_left_ms"] = Json::UInt64(info.pin_left_ms);
  document["extents"] = info.extent_count;
  document["group"] = Json::UInt64(info.group);
  document["parent_hash"] = info.parent_hash == 0 ? "" : fmt::format("{:016x}", info.parent_hash);
  print_json(document);
}

void print_stat_text(const std::string& key, const mc_stat_info& info) {
  if (info.extent_count == 0) {
    fmt::print("key       {}\n", escape_key(key));
    fmt::print("length    {} ({} bytes)\n", format_bytes(info.length), format_count(info.length));
    fmt::print("pool      no: a disk of this host, or another host, has the object\n");
    return;
  }
  std::string pin(pin_name(info.pin));
  if (info.pin == MC_PIN_SOFT) {
    pin += ", " + format_duration_ns(static_cast<double>(info.pin_left_ms) * 1e6) + " left";
  }
  fmt::print("key       {}\n", escape_key(key));
  fmt::print("length    {} ({} bytes)\n", format_bytes(info.length), format_count(info.length));
  fmt::print("version   {}\n", info.version);
  fmt::print("checksum  {:016x}\n", info.checksum);
  fmt::print("pin       {}\n", pin);
  fmt::print("extents   {}\n", info.extent_count);
  fmt::print("group     {}\n", info.group == 0 ? "-" : std::to_string(info.group));
  fmt::print("parent    {}\n",
             info.parent_hash == 0 ? "-" : fmt::format("hash {:016x}", info.parent_hash));
}

void run_stat(Context& context, const StatOptions& options) {
  const auto key = key_from_text(context, "stat", options.key, options.escaped);
  if (!key) return;
  const ClientSession session(context, "stat");
  if (session.client() == nullptr) return;
  mc_stat_info info{};
  info.struct_size = sizeof info;
  const mc_status status = mc_stat(session.client(), slice_of(*key), &info);
  if (status != MC_OK) {
    report_last_error(context, "stat", status);
  } else if (context.json) {
    print_stat_json(*key, info);
  } else {
    print_stat_text(*key, info);
  }
}

}  // namespace

Verb stat_verb(Context& context) {
  auto options = std::make_shared<StatOptions>();
  return {
      .name = "stat",
      .text = R"(Show the metadata of one object

Shows length, version, checksum (CRC-64/XZ of the bytes, seeded with the hash of the key), pin
and its remaining time, extents, group, and the hash of the parent's key. mcctl reads the shared
index and does not read the object's bytes. If the object is not in the pool of this host, but on
its disks or on other hosts, only the length is shown. In a cluster, "mcctl where" shows where the
object is.)",
      .footer = R"(EXAMPLES
  mcctl stat greeting
  mcctl stat --escaped 'block%00%01' --json

EXIT STATUS
  0 shown; 1 failure; 2 wrong usage; 3 no object has this key;
  4 no master or holder answers)",
      .options = {{.name = "KEY",
                   .value = &options->key,
                   .help = "The key of the object",
                   .required = true},
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_stat(context, *options); },
  };
}

}  // namespace mc::ctl
