// SPDX-License-Identifier: Apache-2.0
#include "agent/embedded.h"

#include "agent/agent.h"

namespace mc::agent {

Result<std::unique_ptr<client::Connector>> EmbeddedAgent::start(const char* config) {
  auto options = load_embedded_options(config);
  if (!options) return fail(options.error());
  auto agent = Agent::create_embedded(*options);
  if (!agent) return fail(agent.error());
  return std::unique_ptr<client::Connector>(new EmbeddedAgent(std::move(*agent)));
}

EmbeddedAgent::EmbeddedAgent(std::unique_ptr<Agent> agent)
    : agent_(std::move(agent)), thread_([this] {
        static_cast<void>(agent_->run());  // an embedded agent has no cluster
      }) {}

EmbeddedAgent::~EmbeddedAgent() {
  agent_->stop();
  thread_.join();
}

Result<Fd> EmbeddedAgent::connect(std::uint64_t) { return agent_->connect_embedded(); }

void register_embedded_agent() { client::set_embedded_factory(EmbeddedAgent::start); }

}  // namespace mc::agent
