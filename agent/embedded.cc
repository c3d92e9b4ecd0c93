// SPDX-License-Identifier: Apache-2.0
#include "agent/embedded.h"

#include <thread>

#include "agent/agent.h"

namespace mc::agent {

struct EmbeddedAgent::State {
  std::unique_ptr<Agent> agent;
  std::thread thread;
};

Result<std::unique_ptr<EmbeddedAgent>> EmbeddedAgent::start(std::string_view config) {
  auto options = load_embedded_options(config);
  if (!options) return fail(options.error());
  auto agent = Agent::create_embedded(*options);
  if (!agent) return fail(agent.error());
  auto state = std::make_unique<State>();
  state->agent = std::move(*agent);
  state->thread = std::thread([agent_ptr = state->agent.get()] {
    static_cast<void>(agent_ptr->run());  // an embedded agent has no cluster
  });
  return std::unique_ptr<EmbeddedAgent>(new EmbeddedAgent(std::move(state)));
}

EmbeddedAgent::EmbeddedAgent(std::unique_ptr<State> state) : state_(std::move(state)) {}

EmbeddedAgent::~EmbeddedAgent() {
  state_->agent->stop();
  state_->thread.join();
}

Result<Fd> EmbeddedAgent::connect() { return state_->agent->connect_embedded(); }

}  // namespace mc::agent
