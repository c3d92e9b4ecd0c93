// SPDX-License-Identifier: Apache-2.0
//
// The text of an admin request, answered by an agent inside this process: first for a peer without
// rights, then for a peer with rights. Every answer is a JSON object. A peer without rights changes
// nothing. control_fuzz covers the messages that carry the text.
#include "agent/admin/admin.h"

#include <json/reader.h>
#include <unistd.h>

#include <memory>

#include "agent/agent.h"
#include "bytes.h"
#include "shm/messages.h"

namespace {

using mc::fuzz::require;

// An agent without a running loop: this thread acts as the loop.
class Rig {
 public:
  Rig() : reader_(Json::CharReaderBuilder().newCharReader()) {
    const auto options =
        mc::agent::load_embedded_options("pool_bytes=1MiB\nmax_pool_bytes=2MiB\nlog_level=off\n");
    require(options.has_value());
    agent_ = std::move(*mc::agent::Agent::create_embedded(*options));
  }

  Json::Value ask(std::string_view request, std::uint32_t uid) {
    mc::PeerCredentials peer;
    peer.uid = uid;
    std::string answer;
    agent_->admin().answer(request, peer, [&](std::string text) { answer = std::move(text); });
    Json::Value value;
    require(reader_->parse(answer.data(), answer.data() + answer.size(), &value, nullptr) &&
            value.isObject());
    return value;
  }

 private:
  std::unique_ptr<mc::agent::Agent> agent_;
  const std::unique_ptr<Json::CharReader> reader_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Rig* const rig = new Rig;
  const std::string_view request(
      reinterpret_cast<const char*>(data),
      std::min(size, mc::shm::kMaxControlBytes - sizeof(mc::shm::ControlHeader)));
  // Half of the inputs first run without rights: only requests that change something need rights.
  if (size % 2 == 1) require(!rig->ask(request, ::geteuid() + 1).isMember("namespace"));
  const Json::Value answer = rig->ask(request, ::geteuid());
  // Removes namespaces that this input has created, so that inputs stay independent.
  if (answer.isMember("namespace") && answer["namespace"].asString() != "default") {
    const std::string drop =
        R"({"verb":"drop_namespace","name":")" + answer["namespace"].asString() + "\"}";
    require(rig->ask(drop, ::geteuid()).isMember("sessions_ended"));
  }
  return 0;
}
