// SPDX-License-Identifier: Apache-2.0
//
// What it is: an agent's answers to "rails" and "status" as tables, and what changed between two of
//   them as rates.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing; fields that are missing read as zero.
#pragma once

#include <string>

#include <json/value.h>

namespace mc::ctl {

// Health, load, bandwidth and errors of each rail, a line each.
std::string rails_text(const Json::Value& rails);

// Two looks, elapsed_s apart, as one sample of rates: {"elapsed_s","rates","namespaces","sessions",
// "rails"}. rails: null for an agent that is alone.
struct TopLook {
  Json::Value status;
  Json::Value rails;
};
Json::Value top_sample(const TopLook& before, const TopLook& now, double elapsed_s);
std::string top_text(const Json::Value& sample);

}  // namespace mc::ctl
