// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "ctl/doctor/doctor_checks.h"

namespace mc::ctl {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

HostFacts good_host() {
  HostFacts facts;
  facts.memlock_bytes = kUnlimited;
  facts.open_files = 65536;
  facts.huge_page_bytes = 2 << 20;
  facts.huge_pages_total = 1024;
  facts.huge_pages_free = 1000;
  facts.shmem_huge = "advise";
  facts.available_bytes = 64 * kGiB;
  facts.group_limit_bytes = kUnlimited;
  facts.dev_shm_bytes = 32 * kGiB;
  facts.kernel = "6.6.1-amd64";
  facts.cpus = 16;
  facts.clocksource = "tsc";
  facts.systemd_runs = true;
  facts.unit_file = "/etc/systemd/system/mc-agent.service";
  return facts;
}

AgentFacts good_agent() {
  AgentFacts agent;
  agent.socket = "/run/mc/agent.sock";
  agent.directory = "/run/mc";
  agent.socket_facts = {true, true, false, 0600, 1000};
  agent.directory_facts = {true, false, true, 0700, 1000};
  agent.our_uid = 1000;
  agent.answered = true;
  agent.ready = true;
  agent.pid = 7;
  agent.version = agent.our_version = "0.1.0";
  return agent;
}

KernelFeatures good_kernel() { return {true, true, true, true, true, true}; }

TEST(CtlDoctor, GoodHostPassesEveryCheckWithoutRemedies) {
  for (const Verdict& verdict : all_checks(good_host(), good_kernel(), good_agent())) {
    EXPECT_EQ(verdict.health, Health::kOk) << verdict.check << ": " << verdict.finding;
    EXPECT_TRUE(verdict.remedy.empty()) << verdict.check;
  }
}

TEST(CtlDoctor, AnUnknownHostGetsARemedyForEachComplaint) {
  std::set<std::string> names;
  for (const Verdict& verdict : all_checks(HostFacts(), KernelFeatures(), AgentFacts())) {
    EXPECT_TRUE(names.insert(verdict.check).second) << verdict.check << " comes twice";
    EXPECT_FALSE(verdict.finding.empty()) << verdict.check;
    EXPECT_EQ(verdict.remedy.empty(), verdict.health == Health::kOk) << verdict.check;
  }
}

TEST(CtlDoctor, AClusterWithoutAMasterOrWithAMemberOutOfReachIsNotWell) {
  AgentFacts agent = good_agent();
  EXPECT_EQ(check_masters(agent).health, Health::kOk) << "no cluster";
  EXPECT_EQ(check_members(agent).health, Health::kOk);
  agent.in_cluster = true;
  agent.master_trouble = "dial 10.0.0.1:7400: the proof of the cluster key is wrong";
  EXPECT_EQ(check_masters(agent).health, Health::kFail);
  EXPECT_NE(check_masters(agent).finding.find("cluster key is wrong"), std::string::npos);
  EXPECT_EQ(check_members(agent).health, Health::kOk) << "nobody lists members";
  agent.master_ready = true;
  agent.members = 3;
  EXPECT_EQ(check_masters(agent).health, Health::kOk);
  EXPECT_EQ(check_members(agent).health, Health::kOk);
  agent.unreachable_members = "7 at 127.0.0.1:7401";
  EXPECT_EQ(check_members(agent).health, Health::kWarn);
  EXPECT_NE(check_members(agent).finding.find("7 at 127.0.0.1:7401"), std::string::npos);
}

TEST(CtlDoctor, AHostWhoseClockIsFarFromThisHostsIsNamed) {
  AgentFacts agent = good_agent();
  EXPECT_EQ(check_clocks(agent).health, Health::kOk) << "no cluster";
  agent.members = 3;
  agent.clock_of = "7 at 127.0.0.1:7401";
  for (const std::int64_t close_ms : {-1'000, 0, 1'000}) {
    agent.clock_ahead_ms = close_ms;
    EXPECT_EQ(check_clocks(agent).health, Health::kOk) << close_ms;
  }
  agent.clock_ahead_ms = 3'200;
  EXPECT_EQ(check_clocks(agent).health, Health::kWarn);
  EXPECT_EQ(check_clocks(agent).finding, "7 at 127.0.0.1:7401 is 3.2 s ahead of this host");
  agent.clock_ahead_ms = -60'000;
  EXPECT_EQ(check_clocks(agent).finding, "7 at 127.0.0.1:7401 is 60.0 s behind this host");
}

TEST(CtlDoctor, TheOneSidedTransportIsShownWithItsObstacles) {
  HostFacts host = good_host();
  AgentFacts agent = good_agent();
  EXPECT_EQ(check_transports(host, agent).health, Health::kOk);
  agent.in_cluster = true;
  agent.one_sided_obstacles = "no EFA: this host has no such device";
  EXPECT_EQ(check_transports(host, agent).health, Health::kOk) << "most hosts have nothing but TCP";
  EXPECT_EQ(check_transports(host, agent).finding,
            "TCP alone: no EFA: this host has no such device");
  host.rdma_devices = "mlx5_0";
  agent.one_sided_obstacles = "port 1 of RDMA device mlx5_0 is not active";
  EXPECT_EQ(check_transports(host, agent).health, Health::kWarn) << "it could have more";
  EXPECT_NE(check_transports(host, agent).finding.find("not active"), std::string::npos);
  agent.one_sided_obstacles = "";
  EXPECT_EQ(check_transports(host, agent).health, Health::kOk) << "transports = tcp";
  agent.one_sided = "fabric";
  agent.one_sided_devices = "efa rdmap0s6-rdm";
  agent.one_sided_obstacles = "";
  EXPECT_EQ(check_transports(host, agent).health, Health::kOk);
  EXPECT_EQ(check_transports(host, agent).finding,
            "TCP, and fabric for large reads (efa rdmap0s6-rdm)");
  agent.one_sided_obstacles = "the limit of locked memory";
  EXPECT_EQ(check_transports(host, agent).health, Health::kWarn);
  EXPECT_NE(check_transports(host, agent).finding.find("locked memory"), std::string::npos);
}

TEST(CtlDoctor, AGpuWithoutWorkerAndAClientThatCopiesByItselfAreShown) {
  HostFacts host = good_host();
  AgentFacts agent = good_agent();
  EXPECT_EQ(check_gpus(host, agent).health, Health::kOk);
  host.gpus = 8;
  agent.gpu_workers = 7;
  EXPECT_EQ(check_gpus(host, agent).health, Health::kWarn);
  EXPECT_EQ(check_gpus(host, agent).finding.substr(0, 9), "7 of 8 ha");
  agent.gpu_workers = 8;
  EXPECT_EQ(check_gpus(host, agent).health, Health::kOk);
  agent.own_copies_of = "vllm (pid 7)";
  for (const char* because : {"no_worker", "not_registered", "not_shared", "not_pinned"}) {
    agent.own_copies_because = because;
    const Verdict verdict = check_gpus(host, agent);
    EXPECT_EQ(verdict.health, Health::kWarn);
    EXPECT_EQ(verdict.finding.find("vllm (pid 7) copies GPU memory itself: "), 0u);
    EXPECT_FALSE(verdict.remedy.empty());
  }
}

TEST(CtlDoctor, SmallLockLimitIsAWarningThatNamesTheProcess) {
  HostFacts facts = good_host();
  facts.memlock_bytes = 8 << 20;
  EXPECT_EQ(check_memlock(facts).health, Health::kWarn);
  EXPECT_NE(check_memlock(facts).finding.find("this shell"), std::string::npos);
  facts.limits_are_the_agents = true;
  EXPECT_NE(check_memlock(facts).finding.find("the agent"), std::string::npos);
}

TEST(CtlDoctor, OpenFileLimitIsJudgedAtItsBounds) {
  HostFacts facts = good_host();
  for (const auto& [limit, health] : {std::pair{255u, Health::kFail},
                                      {256u, Health::kWarn},
                                      {16383u, Health::kWarn},
                                      {16384u, Health::kOk}}) {
    facts.open_files = limit;
    EXPECT_EQ(check_open_files(facts).health, health) << limit;
  }
}

TEST(CtlDoctor, ControlGroupCountsWhenItIsTighterThanTheHost) {
  HostFacts facts = good_host();
  facts.group_limit_bytes = kGiB;
  facts.group_used_bytes = kGiB / 2;
  EXPECT_EQ(check_memory(facts).health, Health::kWarn);
  facts.group_used_bytes = 2 * kGiB;  // over the limit, as happens while the limit is lowered
  EXPECT_EQ(check_memory(facts).health, Health::kFail);
}

TEST(CtlDoctor, MissingSharedMemoryFolderFailsOnlyWhereTheAgentUsesIt) {
  HostFacts facts = good_host();
  facts.dev_shm_bytes.reset();
  AgentFacts agent = good_agent();
  EXPECT_EQ(check_dev_shm(facts, agent).health, Health::kWarn);
  agent.directory = "/dev/shm/mc-1000";
  EXPECT_EQ(check_dev_shm(facts, agent).health, Health::kFail);
}

TEST(CtlDoctor, KernelsBefore515Fail) {
  HostFacts facts = good_host();
  for (const auto& [kernel, health] : {std::pair{"4.18.0", Health::kFail},
                                       {"5.14.21", Health::kFail},
                                       {"5.15.0-91-generic", Health::kOk},
                                       {"6.1.0", Health::kOk},
                                       {"unknown", Health::kWarn}}) {
    facts.kernel = kernel;
    EXPECT_EQ(check_kernel_version(facts).health, health) << kernel;
  }
}

TEST(CtlDoctor, OneCpuAndQuotasBelowTwoAreWarnings) {
  HostFacts facts = good_host();
  facts.cpu_quota = 1.5;
  EXPECT_EQ(check_cpus(facts).health, Health::kWarn);
  facts.cpu_quota = 2;
  EXPECT_EQ(check_cpus(facts).health, Health::kOk);
  facts.cpus = 1;
  EXPECT_EQ(check_cpus(facts).health, Health::kWarn);
}

TEST(CtlDoctor, SlowClocksourceIsAWarning) {
  HostFacts facts = good_host();
  facts.clocksource = "hpet";
  EXPECT_EQ(check_clocksource(facts).health, Health::kWarn);
  facts.clocksource = "kvm-clock";
  EXPECT_EQ(check_clocksource(facts).health, Health::kOk);
}

TEST(CtlDoctor, UnitIsMissedOnlyWhereSystemdRuns) {
  HostFacts facts = good_host();
  facts.unit_file.clear();
  EXPECT_EQ(check_systemd(facts).health, Health::kWarn);
  facts.systemd_runs = false;
  EXPECT_EQ(check_systemd(facts).health, Health::kOk);
}

TEST(CtlDoctor, RequiredKernelFeaturesFailAndOthersDoNot) {
  std::set<std::string> failing;
  for (const Verdict& verdict : check_kernel_features(KernelFeatures())) {
    if (verdict.health == Health::kFail) failing.insert(verdict.check);
  }
  EXPECT_EQ(failing, (std::set<std::string>{"memfd-sealing", "pidfd-open"}));
}

TEST(CtlDoctor, DirectoryIsJudgedByItsModeAndOwner) {
  AgentFacts agent = good_agent();
  for (const auto& [mode, health] : {std::pair{0700u, Health::kOk},
                                     {0750u, Health::kOk},
                                     {0755u, Health::kWarn},
                                     {0770u, Health::kFail},
                                     {0777u, Health::kFail}}) {
    agent.directory_facts.mode = mode;
    EXPECT_EQ(check_directory(agent).health, health) << std::oct << mode;
  }
  agent = good_agent();
  agent.directory_facts.uid = 4711;
  EXPECT_EQ(check_directory(agent).health, Health::kFail);
}

TEST(CtlDoctor, SocketOpenToAllIsAWarningUnlessItsDirectoryIsClosed) {
  AgentFacts agent = good_agent();
  agent.socket_facts.mode = 0666;
  EXPECT_EQ(check_socket(agent).health, Health::kOk);
  agent.directory_facts.mode = 0755;
  EXPECT_EQ(check_socket(agent).health, Health::kWarn);
  agent.socket_facts.is_socket = false;
  EXPECT_EQ(check_socket(agent).health, Health::kFail);
}

TEST(CtlDoctor, AgentOfAnotherVersionIsAWarning) {
  AgentFacts agent = good_agent();
  agent.version = "0.2.0";
  EXPECT_EQ(check_agent_version(agent).health, Health::kWarn);
  agent.ready = false;
  EXPECT_EQ(check_agent(agent).health, Health::kWarn);
  agent.answered = false;
  EXPECT_EQ(check_agent(agent).health, Health::kFail);
}

TEST(CtlDoctor, ThisKernelHasWhatTheTestsThemselvesNeed) {
  const KernelFeatures features = probe_kernel();
  EXPECT_TRUE(features.sealed_memfd);
  EXPECT_TRUE(features.pidfd_open);
}

}  // namespace
}  // namespace mc::ctl
