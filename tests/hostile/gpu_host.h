// SPDX-License-Identifier: Apache-2.0
//
// A host with GPUs of the fake driver: processes of an agent, of a worker, and of an engine, which has
// memory on the device.
// Owns: the processes and the folder of the fake driver.
#pragma once

#include <gtest/gtest.h>
#include <json/value.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "device/peer_process.h"
#include "hostile/agent_process.h"
#include "patience.h"

namespace mc::hostile {

inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kPoolBytes = 64 * kMiB;  // of AgentProcess

class GpuHost : public ::testing::Test {
 protected:
  // same_numbers: the devices have the same numbers in all processes.
  explicit GpuHost(bool same_numbers = false) {
    if (same_numbers) ::setenv("MC_FAKE_DRIVER_SAME_NUMBERS", "1", 1);
    folder_ = make_directory();
    ::setenv("MC_FAKE_DRIVER", folder_.c_str(), 1);
    const std::string library = MC_FAKE_DRIVER_LIBRARY;
    ::setenv("LD_LIBRARY_PATH", library.substr(0, library.rfind('/')).c_str(), 1);
    peer_ = std::make_unique<device::testing::PeerProcess>();
  }
  ~GpuHost() override {
    workers_.clear();
    agent_.reset();
    peer_.reset();
    ::unsetenv("MC_FAKE_DRIVER_SAME_NUMBERS");
    remove_directory(folder_);
  }
  void start_agent(const std::string& gpus, const std::string& failpoints = "",
                   std::vector<std::string> flags = {}) {
    if (!failpoints.empty()) ::setenv("MC_FAILPOINTS", failpoints.c_str(), 1);
    flags.push_back("--gpus=" + gpus);
    agent_ = std::make_unique<AgentProcess>(flags);
    ::unsetenv("MC_FAILPOINTS");
  }
  // A worker that the agent has not started.
  void start_worker(const std::string& failpoints = "") {
    if (!failpoints.empty()) ::setenv("MC_FAILPOINTS", failpoints.c_str(), 1);
    workers_.push_back(std::make_unique<LineProcess>(
        std::vector<std::string>{program("mc-gpu"), "--socket", agent_->socket()}));
    ::unsetenv("MC_FAILPOINTS");
  }
  // The pid of a worker that serves, and is another one than this.
  int worker_pid(int other_than = 0) {
    int pid = 0;
    EXPECT_TRUE(until([&] {
      const Json::Value workers = agent_->ask("status")["gpu_workers"];
      if (!workers.empty()) pid = workers[0]["pid"].asInt();
      return pid != 0 && pid != other_than;
    })) << agent_->log();
    return pid;
  }
  Json::Value counters() { return agent_->ask("status")["gpu_workers"][0]; }
  bool all_sessions_have_ended() {
    return until([&] { return agent_->ask("status")["sessions"].empty(); });
  }

  std::string folder_;
  std::unique_ptr<AgentProcess> agent_;
  std::vector<std::unique_ptr<LineProcess>> workers_;
  std::unique_ptr<device::testing::PeerProcess> peer_;
};

}  // namespace mc::hostile
