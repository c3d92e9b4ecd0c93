// SPDX-License-Identifier: Apache-2.0
#include "agent/embedded_connector.h"

#include "agent/embedded.h"
#include "libmc/client/client.h"

namespace mc::agent {

namespace {

class EmbeddedConnector : public client::Connector {
 public:
  explicit EmbeddedConnector(std::unique_ptr<EmbeddedAgent> agent) : agent_(std::move(agent)) {}
  Result<Fd> connect(std::uint64_t) override { return agent_->connect(); }

 private:
  std::unique_ptr<EmbeddedAgent> agent_;
};

Result<std::unique_ptr<client::Connector>> start_embedded(const char* config) {
  auto agent = EmbeddedAgent::start(config);
  if (!agent) return fail(agent.error());
  return std::make_unique<EmbeddedConnector>(std::move(*agent));
}

}  // namespace

void register_embedded_agent() { client::set_embedded_factory(start_embedded); }

}  // namespace mc::agent
