// SPDX-License-Identifier: Apache-2.0
//
// What it is: the frame around every attack: an agent, an honest client that works meanwhile, and
//   after it the questions whether the agent is the same, alive, holds no more than before, and
//   answers.
// Threads: the test's.
#pragma once

#include "agent_process.h"
#include "honest_client.h"
#include "hostile_session.h"
#include "sanitizer.h"

namespace mc::hostile {

inline constexpr uid_t kStranger = 65534;  // a user without rights

bool is_long_run();

class AttackTest : public ::testing::Test {
 protected:
  explicit AttackTest(std::vector<std::string> flags = {});
  void SetUp() override;
  // Everything that must hold after an attack.
  void TearDown() override;

  std::string socket_path() const { return agent_.socket(); }
  // The number of sessions the agent counts.
  std::size_t session_count() const;

  AgentProcess agent_;
  std::unique_ptr<HonestClient> honest_;

 private:
  std::size_t fds_before_ = 0;
  std::uint64_t anon_before_kib_ = 0;
  std::uint64_t rss_before_kib_ = 0;
};

}  // namespace mc::hostile
