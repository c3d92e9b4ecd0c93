// SPDX-License-Identifier: Apache-2.0
//
// A cluster whose agents put large objects in stripes.
// Threads: the test's thread.
// Owns: the master and the agents.
#pragma once

#include <json/value.h>

#include <future>

#include "cluster/cluster_fixture.h"
#include "libmc/base/clock.h"
#include "metadata/master/client/master_client.h"

namespace mc::cluster {

inline constexpr std::size_t kLarge = 7 * kMiB + 12345;

class Stripes : public ClusterTest {
 protected:
  // Starts equal agents, with stripes of 1 MiB for objects above that size.
  void start_striping(std::size_t agents, AgentOptions options = {}) {
    options.try_emplace("stripe_bytes", "1MiB");
    options.try_emplace("stripe_grace_seconds", option_time(2));
    start(agents, std::move(options));
  }
  // Starts an agent that dies at a failpoint.
  void start_armed(const std::string& failpoint) {
    agents_.push_back(std::make_unique<conformance::AgentProcess>());
    agents_.back()->arm(failpoint);
    start_agent(agents_.size() - 1);
  }
  void all_know_all() {
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      ASSERT_TRUE(until(
          [&] { return ask(i, "status")["cluster"]["members"].asUInt64() == agents_.size(); }));
    }
  }
  std::uint64_t stripes(std::size_t agent, const std::string& name) {
    return counter(agent, "stripes", name);
  }
  std::uint64_t stripes_here() {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i]->running()) count += stripes(i, "stripes_here");
    }
    return count;
  }
  // Asks the master like a tool does.
  template <typename Answer, typename Call>
  Answer of_master(Call call) {
    if (!tool_) {
      metadata::MasterClientOptions to;
      to.masters = {master_->address()};
      auto made = metadata::MasterClient::create(to, nullptr);
      EXPECT_TRUE(made) << (made ? "" : made.error().to_string());
      tool_ = std::move(*made);
    }
    auto said = std::make_shared<std::promise<Result<Answer>>>();
    auto answer = said->get_future();
    call(*tool_, [said](Result<Answer> result) { said->set_value(std::move(result)); });
    Result<Answer> result = answer.get();
    EXPECT_TRUE(result) << (result ? "" : result.error().to_string());
    return result ? std::move(*result) : Answer();
  }
  static metadata::wire::Match matching(const std::string& prefix) {
    metadata::wire::Match match;
    match.name_space = "default";
    match.pattern = prefix;
    return match;
  }
  std::unique_ptr<metadata::MasterClient> tool_;
};

}  // namespace mc::cluster
