// SPDX-License-Identifier: Apache-2.0
//
// What it is: the agent's counters, read from the memory file it keeps them in. They stay readable
//   while the agent is dead.
// Threads: any. Owns nothing after it returns.
// Trusts: nothing; the file is read through a bounded reader.
#pragma once

#include <optional>
#include <string>

#include <json/value.h>

namespace mc::ctl {

// runtime_dir_or_socket: the runtime directory, or the agent's socket in it. An object of name ->
// number, perhaps with nested objects. Nullopt: there is no such page, or it is not ours to read.
std::optional<Json::Value> read_counters_page(const std::string& runtime_dir_or_socket);

}  // namespace mc::ctl
