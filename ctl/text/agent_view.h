// SPDX-License-Identifier: Apache-2.0
//
// The agent's answers to "status" and "rails" and its counters page as text.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing; a missing field reads as zero.
#pragma once

#include <cstdint>
#include <string>

#include <json/value.h>

namespace mc::ctl {

// previous: the answer of elapsed_s seconds ago, to show rates; or null and 0.
std::string status_text(const Json::Value& status, const Json::Value& previous, double elapsed_s);

// tier: the member of the answer. Objects that no disk took, for all reasons.
std::uint64_t evicted_without_disk(const Json::Value& tier);

// A counter per line; nested names are joined with dots.
std::string counters_text(const Json::Value& counters);

// Health, load, bandwidth and errors of each rail, a rail per line.
std::string rails_text(const Json::Value& rails);

}  // namespace mc::ctl
