// SPDX-License-Identifier: Apache-2.0
//
// The agent's status as metrics in the text format of Prometheus.
// Threads: any; pure functions.
// Owns: nothing.
// Trusts: nothing. A value that is missing or has another type than expected is left out.
#pragma once

#include <string>

#include <json/value.h>

namespace mc::agent {

// status: the answer of the verb "status" (agent/admin/admin.h).
std::string metrics_text(const Json::Value& status);
// All metrics as a table in Markdown: name, kind, labels, meaning.
std::string metrics_table();

}  // namespace mc::agent
