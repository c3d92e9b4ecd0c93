// SPDX-License-Identifier: Apache-2.0
//
// An agent inside this process, behind the address "embedded" of mc_open(). The client
//   uses the same protocol as over the socket.
// Threads: any; register_embedded_agent() once, before the first mc_open().
// Owns: the agent and the agent's thread, until the client releases this object.
#pragma once

#include <memory>
#include <thread>

#include "libmc/base/fd.h"
#include "libmc/client/client.h"

namespace mc::agent {

class Agent;

class EmbeddedAgent final : public client::Connector {
 public:
  // config: "name=value" lines. Errors: as Agent::create.
  static Result<std::unique_ptr<client::Connector>> start(const char* config);
  ~EmbeddedAgent() override;
  Result<Fd> connect(std::uint64_t timeout_ns) override;

 private:
  explicit EmbeddedAgent(std::unique_ptr<Agent> agent);
  std::unique_ptr<Agent> agent_;
  std::thread thread_;
};

// Makes "embedded" an address of mc_open() in this program.
void register_embedded_agent();

}  // namespace mc::agent
