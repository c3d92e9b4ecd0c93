// SPDX-License-Identifier: Apache-2.0
#include "ctl/verbs/objects.h"

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {

Option escaped_option(bool& escaped) {
  return {
      .name = "--escaped",
      .value = &escaped,
      .help = "In keys, %XX stands for a byte that cannot be typed, as in the output of mcctl ls"};
}

std::optional<std::string> key_from_text(Context& context, std::string_view verb,
                                         const std::string& text, bool escaped) {
  const auto key = escaped ? unescape_key(text) : std::optional<std::string>(text);
  if (!key) {
    report_usage(context, verb, fmt::format("'{}' has a % without two hexadecimal digits", text),
                 "write a % itself as %25, or leave out --escaped");
    return std::nullopt;
  }
  if (key->empty() || key->size() > MC_MAX_KEY_BYTES) {
    report_usage(context, verb, fmt::format("a key of {} bytes", key->size()),
                 fmt::format("a key of 1 to {} bytes", MC_MAX_KEY_BYTES));
    return std::nullopt;
  }
  return key;
}

std::optional<std::vector<std::string>> keys_from_texts(Context& context, std::string_view verb,
                                                        const std::vector<std::string>& texts,
                                                        bool escaped) {
  std::vector<std::string> keys;
  keys.reserve(texts.size());
  for (const std::string& text : texts) {
    auto key = key_from_text(context, verb, text, escaped);
    if (!key) return std::nullopt;
    keys.push_back(std::move(*key));
  }
  return keys;
}

Option pin_option(PinWords& words, std::string help) {
  return {.name = "--pin",
          .value = &words.pin,
          .help = std::move(help),
          .choices = {"none", "soft", "hard"}};
}

Option ttl_option(PinWords& words) {
  return {"--ttl", &words.ttl,
          "The time of a soft pin, such as 10m; implies --pin soft; default: 1h", "DURATION"};
}

std::string_view pin_name(mc_pin pin) {
  switch (pin) {
    case MC_PIN_SOFT:
      return "soft";
    case MC_PIN_HARD:
      return "hard";
    default:
      return "none";
  }
}

std::optional<Pin> pin_from_words(Context& context, std::string_view verb, const PinWords& words) {
  Pin out;
  out.pin = words.pin == "hard"                                                ? MC_PIN_HARD
            : words.pin == "soft" || (words.pin.empty() && !words.ttl.empty()) ? MC_PIN_SOFT
                                                                               : MC_PIN_NONE;
  if (words.ttl.empty()) return out;
  if (out.pin != MC_PIN_SOFT) {
    report_usage(context, verb, "--ttl goes with a soft pin", "--pin soft, or no --ttl");
    return std::nullopt;
  }
  constexpr std::uint64_t kMillisecondNs = 1000000;
  const auto ttl_ns = parse_duration_ns(words.ttl);
  if (!ttl_ns || *ttl_ns < kMillisecondNs) {
    report_usage(context, verb, fmt::format("--ttl: '{}' is not a duration", words.ttl),
                 "a number and a unit, such as 500ms, 30s, 10m, 2h or 7d; 1ms at least");
    return std::nullopt;
  }
  out.ttl_ms = *ttl_ns / kMillisecondNs;
  return out;
}

Option local_option(bool& local) {
  return {
      .name = "--local", .value = &local, .help = "Only of this host, not of the whole cluster"};
}

std::optional<bool> is_shared(Context& context, const std::string& verb) {
  Json::Value request;
  request["verb"] = "status";
  const auto status = ask_agent(context, verb, request);
  if (!status) return std::nullopt;
  if (field(*status, "cluster").isNull()) return false;
  for (const Json::Value& space : array_field(*status, "namespaces")) {
    if (text_field(space, "name") == context.name_space) return flag_field(space, "clustered");
  }
  return false;
}

bool all_confirmed(Context& context, const std::string& verb, const Json::Value& answer,
                   const std::string& consequence) {
  const std::uint64_t silent = number_field(answer, "unconfirmed");
  if (silent == 0) return true;
  report(context, verb, kExitFailed,
         {fmt::format("{} {} not answered, so {}", format_count(silent),
                      silent == 1 ? "host has" : "hosts have", consequence),
          "mcctl nodes shows which hosts are away"});
  return false;
}

Json::Value question_about(const Context& context, const std::string& verb, std::string_view prefix,
                           Where where) {
  Json::Value request;
  request["verb"] = verb;
  request["namespace"] = context.name_space;
  request["prefix"] = escape_key(prefix);
  request["local"] = where == Where::kHere;
  request["timeout_ms"] = u64(timeout_ms(context));
  return request;
}

bool for_each_object(Context& context, const std::string& verb, std::string_view prefix,
                     Where where, const std::function<bool(const Json::Value& object)>& callback) {
  Json::Value request = question_about(context, "ls", prefix, where);
  for (;;) {
    const auto answer = ask_agent(context, verb, request);
    if (!answer) return false;
    for (const Json::Value& object : array_field(*answer, "objects")) {
      if (!callback(object)) return true;
    }
    if (!all_confirmed(context, verb, *answer, "keys may be missing")) return false;
    const Json::Value& cursor = field(*answer, "cursor");
    if (cursor.empty() || cursor == Json::Value(0) || cursor == Json::Value("")) return true;
    // Without this check, an agent that repeats a cursor would keep mcctl here for ever.
    if (cursor == request["cursor"]) {
      report_status(context, verb, MC_INTERNAL, "the agent's list does not advance");
      return false;
    }
    request["cursor"] = cursor;
  }
}

}  // namespace mc::ctl
