// SPDX-License-Identifier: Apache-2.0
//
// An agent inside this process, behind the address "embedded" of mc_open(). The client
//   uses the same protocol as over the socket.
// Threads: any.
// Owns: the agent and the agent's thread, until the last holder releases this object.
#pragma once

#include <memory>
#include <string_view>

#include "libmc/base/fd.h"

namespace mc::agent {

class EmbeddedAgent {
 public:
  // config: "name=value" lines. Errors: as Agent::create.
  static Result<std::unique_ptr<EmbeddedAgent>> start(std::string_view config);
  ~EmbeddedAgent();
  Result<Fd> connect();

 private:
  struct State;
  explicit EmbeddedAgent(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mc::agent
