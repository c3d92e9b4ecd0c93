// SPDX-License-Identifier: Apache-2.0
//
// Two looks at an agent as one sample of rates: the document of "mcctl top --json".
// Threads: any; look_at_agent() blocks until the agent answers. The rest are pure functions.
// Owns nothing.
// Trusts: nothing; a missing field of an answer reads as zero.
//
//   {"elapsed_s","version","pid","uptime_s","sessions_open","hit_ratio",
//    "rates":{"gets_per_s","get_bytes_per_s","puts_per_s",…},
//    "latencies":{OPERATION:{"per_s","p50_below_ns","p99_below_ns"}},
//    "loop":{"longest_below_ns","cause","longest_ever_ns","cause_ever"},
//    "cluster":{"id","master_ready","master_trouble","members","peers_lost"},
//    "namespaces":[…], "sessions":[…], "rails":[…]}
//
// An agent without a cluster has neither "cluster" nor "rails". A rate that two looks cannot tell is
// null.
#pragma once

#include <cstdint>
#include <string>

#include <json/value.h>

#include "mc/status.h"

namespace mc::ctl::top {

// The answers to "status" and "rails". rails is null for an agent without a cluster.
struct AgentLook {
  Json::Value status;
  Json::Value rails;
};

// Each of the two questions has the timeout.
Result<AgentLook> look_at_agent(const std::string& socket_path, std::uint64_t timeout_ns);

// False if the agent started anew between the looks, so that its counters began at zero.
bool is_same_agent(const AgentLook& before, const AgentLook& now);

// elapsed_s: the time between the looks. 0: there is no earlier look, and all rates are null.
Json::Value sample_of(const AgentLook& before, const AgentLook& now, double elapsed_s);

// The bound of the bucket that holds the quantile of a histogram, in nanoseconds: the value lies
// below. Null: there are no counts, or the value lies in the last bucket, which has no bound.
// counts: of agent/server/durations.h, bucket i has the durations below 2^i microseconds.
Json::Value quantile_bound_ns(const std::vector<std::uint64_t>& counts, double quantile);

}  // namespace mc::ctl::top
