// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/verbs/objects.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

struct PinOptions {
  std::vector<std::string> keys;
  PinWords pin;
  bool escaped = false;
};

void run_pin(Context& context, const PinOptions& options) {
  const auto pin = pin_from_words(context, "pin", options.pin);
  if (!pin) return;
  const auto keys = keys_from_texts(context, "pin", options.keys, options.escaped);
  if (!keys) return;
  const ClientSession session(context, "pin");
  if (session.client() == nullptr) return;
  Json::Value document;
  document["keys"] = Json::Value(Json::arrayValue);
  for (const std::string& key : *keys) {
    const mc_status status =
        mc_set_pin(session.client(), slice_of(key), pin->pin, pin->ttl_ms, timeout_ns(context));
    if (status == MC_NOT_FOUND) {
      report(context, "pin", kExitNotFound,
             {"this host has no object with the key " + escape_key(key),
              "mcctl where KEY shows the hosts that hold the object"});
      return;
    }
    if (status != MC_OK) {
      report_last_error(context, "pin", status);
      return;
    }
    document["keys"].append(escape_key(key));
    if (!context.json) fmt::print("{}: pin {}\n", escape_key(key), pin_name(pin->pin));
  }
  document["pin"] = std::string(pin_name(pin->pin));
  if (context.json) print_json(document);
}

}  // namespace

Verb pin_verb(Context& context) {
  auto options = std::make_shared<PinOptions>();
  options->pin.pin = "soft";
  return {
      .name = "pin",
      .text = R"(Keep objects of this host from eviction, or let them go

A soft pin keeps an object until the pool holds only pinned objects, or until the time of the pin ends.
A hard pin keeps the object until somebody removes the object or the pin. "--pin none" ends a pin. The
verb changes the copy of this host. An object on a disk of this host is read into the pool first. If a
key has no object here, the keys behind it stay as they are.
"mcctl stat KEY" shows the pin of an object.)",
      .footer = R"(EXAMPLES
  mcctl pin system-prompt --ttl 30m
  mcctl pin weights/0 weights/1 --pin hard
  mcctl pin weights/0 --pin none

EXIT STATUS
  0 changed; 1 failure; 2 wrong usage; 3 this host has no object with one of the keys)",
      .options = {{.name = "KEY",
                   .value = &options->keys,
                   .help = "The keys of the objects",
                   .required = true},
                  pin_option(options->pin, "The new pin"),
                  ttl_option(options->pin),
                  escaped_option(options->escaped)},
      .run = [options, &context] { run_pin(context, *options); },
  };
}

}  // namespace mc::ctl
