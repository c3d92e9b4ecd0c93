// SPDX-License-Identifier: Apache-2.0
//
// What it is: `mcctl bench --remote`: one host's client, another host's objects, beside a bare TCP
//   connection over the same path. Both hosts are agents of a cluster made for it (replay/stage.h).
// Threads: the main one. Owns: the cluster, the clients, the peer of the bare connection.
#pragma once

#include <functional>

#include "ctl/bench/cases.h"

namespace mc::ctl {

// Calls take with each result. Errors: the cluster could not be started.
Status run_remote_cases(const SamplePlan& plan, std::uint64_t timeout_ns,
                        const std::function<void(const CaseResult&)>& take);

}  // namespace mc::ctl
