// SPDX-License-Identifier: Apache-2.0
#include "ctl/verbs/objects.h"

#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"

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

bool for_each_object(Context& context, const std::string& verb, std::string_view prefix,
                     const std::function<bool(const Json::Value& object)>& callback) {
  constexpr unsigned kPageObjects = 1000;
  Json::Value request;
  request["verb"] = "ls";
  request["namespace"] = context.name_space;
  request["prefix"] = escape_key(prefix);
  request["limit"] = kPageObjects;
  request["cursor"] = 0;
  while (true) {
    const auto answer = ask_agent(context, verb, request);
    if (!answer) return false;
    for (const Json::Value& object : array_field(*answer, "objects")) {
      if (!callback(object)) return true;
    }
    const std::uint64_t cursor = number_field(*answer, "cursor");
    if (cursor == 0) return true;
    // Without this check, an agent that repeats a cursor would keep mcctl here for ever.
    if (cursor == number_field(request, "cursor")) {
      report_status(context, verb, MC_INTERNAL, "the agent's list does not advance");
      return false;
    }
    request["cursor"] = Json::UInt64(cursor);
  }
}

}  // namespace mc::ctl
