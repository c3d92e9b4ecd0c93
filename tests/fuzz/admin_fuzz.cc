// SPDX-License-Identifier: Apache-2.0
//
// The text of an admin request, from a peer without rights and from one with them, answered by an
// agent inside this process. Every answer is a JSON object, and none without rights changes
// anything. The messages around the text are those of control_fuzz.
#include "agent/admin/admin.h"

#include <json/reader.h>
#include <unistd.h>

#include <memory>

#include "agent/agent.h"
#include "bytes.h"
#include "shm/messages.h"

namespace {

using mc::fuzz::require;

// An agent whose loop does not run: this thread is the loop's.
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
    mc::agent::Admin(*agent_).answer(request, peer,
                                     [&](std::string text) { answer = std::move(text); });
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
  // Half of them first without rights: only what changes something names its namespace.
  if (size % 2 == 1) require(!rig->ask(request, ::geteuid() + 1).isMember("namespace"));
  const Json::Value answer = rig->ask(request, ::geteuid());
  // A namespace made by this input would make the next ones another test.
  if (answer.isMember("namespace") && answer["namespace"].asString() != "default") {
    const std::string drop =
        R"({"verb":"drop_namespace","name":")" + answer["namespace"].asString() + "\"}";
    require(rig->ask(drop, ::geteuid()).empty());
  }
  return 0;
}
