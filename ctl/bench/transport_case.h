// SPDX-License-Identifier: Apache-2.0
//
// What it is: `mcctl bench --transport`: batches of blocks read from, or written to, a target's
//   memory, beside the same bytes over bare TCP connections, or beside memcpy where the bytes stay
//   in this host's memory (libfabric's shm).
// Threads: run_transport_cases() starts those of the plan; each drives a transport of its own.
// Owns: transports, memory, the target if it started one.
#pragma once

#include <functional>

#include "ctl/bench/cases.h"
#include "ctl/bench/transport_plan.h"

namespace mc::ctl {

// Calls take with each result. Errors: what the plan wants is not there, with the remedy; bytes
// that came were wrong.
Status run_transport_cases(const TransportPlan& plan, std::uint64_t timeout_ns,
                           const std::function<void(const CaseResult&)>& take);
// Until the process is ended. Errors: the address cannot be listened on.
Status listen_as_target(const TransportPlan& plan, const std::string& host_port);

}  // namespace mc::ctl
