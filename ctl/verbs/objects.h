// SPDX-License-Identifier: Apache-2.0
//
// Functions that the verbs on objects share: keys from the command line, and the
//   agent's list of objects.
// Threads: the main thread.
// Owns: nothing.
// Trusts: nothing of the agent's list.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <json/forwards.h>

#include "ctl/command.h"

namespace mc::ctl {

Option escaped_option(bool& escaped);

inline mc_slice slice_of(std::string_view text) { return {text.data(), text.size()}; }

// The bytes of the key; with escaped, %XX stands for a byte. Nullopt after a reported failure.
std::optional<std::string> key_from_text(Context& context, std::string_view verb,
                                         const std::string& text, bool escaped);
std::optional<std::vector<std::string>> keys_from_texts(Context& context, std::string_view verb,
                                                        const std::vector<std::string>& texts,
                                                        bool escaped);

// The options --pin and --ttl. Both empty: no pin.
struct PinWords {
  std::string pin;
  std::string ttl;
};
Option pin_option(PinWords& words, std::string help);
Option ttl_option(PinWords& words);

struct Pin {
  mc_pin pin = MC_PIN_NONE;
  std::uint64_t ttl_ms = 0;  // of a soft pin; 0: the default
};
std::string_view pin_name(mc_pin pin);  // "none", "soft", "hard"
// Nullopt after a reported failure.
std::optional<Pin> pin_from_words(Context& context, std::string_view verb, const PinWords& words);

// Whether objects are listed and removed in the whole cluster, or on this host alone.
enum class Where { kCluster, kHere };
Option local_option(bool& local);

// Whether the namespace is shared by a cluster. Nullopt: the agent did not answer; the failure was
// reported.
std::optional<bool> is_shared(Context& context, const std::string& verb);

// The request of `ls` or `rm` about the keys that start with prefix.
Json::Value question_about(const Context& context, const std::string& verb, std::string_view prefix,
                           Where where);

// Calls back with every object whose key starts with prefix until the callback returns false: of a
// cluster key and length, in the order of keys; of this host also version, pin, extents and group,
// in no order. Objects that are stored or removed meanwhile may be included or not. False: the
// agent did not answer all requests, or hosts did not answer the agent; the failure was reported.
bool for_each_object(Context& context, const std::string& verb, std::string_view prefix,
                     Where where, const std::function<bool(const Json::Value& object)>& callback);

// Reports hosts that have not answered. True: all hosts have answered.
bool all_confirmed(Context& context, const std::string& verb, const Json::Value& answer,
                   const std::string& consequence);

}  // namespace mc::ctl
