// SPDX-License-Identifier: Apache-2.0
//
// What it is: an agent's answer to "status" and its counters page as text.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing; fields that are missing read as zero.
#pragma once

#include <string>

#include <json/value.h>

namespace mc::ctl {

// previous: the answer of elapsed_s seconds ago, to show rates; or null and 0.
std::string status_text(const Json::Value& status, const Json::Value& previous, double elapsed_s);

// One counter a line; nested names are joined with dots.
std::string counters_text(const Json::Value& counters);

}  // namespace mc::ctl
