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

// Calls back with every object whose key starts with prefix, in no particular order, until the
// callback returns false. Objects that are stored or removed meanwhile may be included or not.
// False: the agent did not answer all requests; the failure was reported.
bool for_each_object(Context& context, const std::string& verb, std::string_view prefix,
                     const std::function<bool(const Json::Value& object)>& callback);

}  // namespace mc::ctl
