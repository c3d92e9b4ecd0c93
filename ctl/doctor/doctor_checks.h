// SPDX-License-Identifier: Apache-2.0
//
// The checks of mcctl doctor: pure functions from facts to a verdict and a remedy.
// Threads: any; pure functions.
// Owns: nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctl/doctor/doctor_facts.h"

namespace mc::ctl {

enum class Health { kOk, kWarn, kFail };
std::string_view health_name(Health health);  // "ok", "warn", "fail"

struct Verdict {
  std::string check;  // short name; stable, because programs search for it
  Health health = Health::kOk;
  std::string finding;
  std::string remedy;  // empty if ok
};

Verdict check_memlock(const HostFacts& facts);
Verdict check_open_files(const HostFacts& facts);
Verdict check_huge_pages(const HostFacts& facts);
Verdict check_shmem_huge(const HostFacts& facts);
Verdict check_memory(const HostFacts& facts);
Verdict check_dev_shm(const HostFacts& facts, const AgentFacts& agent);
Verdict check_kernel_version(const HostFacts& facts);
Verdict check_cpus(const HostFacts& facts);
Verdict check_clocksource(const HostFacts& facts);
Verdict check_systemd(const HostFacts& facts);
std::vector<Verdict> check_kernel_features(const KernelFeatures& features);
Verdict check_directory(const AgentFacts& agent);
Verdict check_socket(const AgentFacts& agent);
Verdict check_agent(const AgentFacts& agent);
Verdict check_agent_version(const AgentFacts& agent);
Verdict check_masters(const AgentFacts& agent);
Verdict check_members(const AgentFacts& agent);
Verdict check_clocks(const AgentFacts& agent);  // of all hosts
Verdict check_gpus(const HostFacts& host, const AgentFacts& agent);
Verdict check_transports(const HostFacts& host, const AgentFacts& agent);

std::vector<Verdict> all_checks(const HostFacts& host, const KernelFeatures& kernel,
                                const AgentFacts& agent);

}  // namespace mc::ctl
