// SPDX-License-Identifier: Apache-2.0
//
// A small cluster of real processes on loopback: masters, agents, and a client of each
//   agent in this process.
// Threads: the test's thread.
// Owns: the processes, the clients.
#pragma once

#include <gtest/gtest.h>
#include <json/value.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/client/agent_fixture.h"
#include "master/master_host.h"

namespace mc::cluster {

using conformance::AgentOptions;
using conformance::content;
using conformance::kMiB;

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest();
  ~ClusterTest() override;

  // Starts a master and that many agents, and waits until the master knows all agents.
  void start(std::size_t agents, AgentOptions options = {}, std::vector<std::string> master = {});
  void start_agent(std::size_t number);
  // Waits until each agent knows a master and that many members.
  void wait_until_joined();
  // Opens a client on the first use of an agent and a namespace.
  mc_client* client(std::size_t agent, const std::string& name_space = "default");
  void close_clients(std::size_t agent);

  mc_status put(std::size_t agent, std::string_view key, std::string_view value,
                const mc_put_options* options = nullptr);
  // Returns the value, or the name of the status in angle brackets.
  std::string get(std::size_t agent, std::string_view key);
  bool exists(std::size_t agent, std::string_view key);

  // Asks an agent like mcctl does.
  Json::Value ask(std::size_t agent, const std::string& verb, Json::Value request = {});
  // The output of mcctl, and its errors.
  std::string mcctl(std::size_t agent, const std::string& words);
  std::uint64_t counter(std::size_t agent, const std::string& group, const std::string& name);
  std::size_t holders(std::size_t agent, std::string_view key);

  std::unique_ptr<metadata::MasterProcess> master_;
  std::vector<std::unique_ptr<conformance::AgentProcess>> agents_;
  AgentOptions options_;

 private:
  struct Opened {
    std::size_t agent;
    std::string name_space;
    mc_client* client;
  };
  std::vector<Opened> clients_;
};

}  // namespace mc::cluster
