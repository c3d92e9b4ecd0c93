// SPDX-License-Identifier: Apache-2.0
//
// The fixture of every attack: an agent, and an honest client that works during the attack. After
//   the attack the fixture checks that the agent is the same process, answers, and holds no more
//   memory.
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
  // Checks all conditions after an attack.
  void TearDown() override;

  std::string socket_path() const { return agent_.socket(); }
  // The agent's number of sessions.
  std::size_t session_count() const;

  AgentProcess agent_;
  std::unique_ptr<HonestClient> honest_;

 private:
  std::size_t fds_before_ = 0;
  std::uint64_t anon_before_kib_ = 0;
  std::uint64_t rss_before_kib_ = 0;
};

}  // namespace mc::hostile
