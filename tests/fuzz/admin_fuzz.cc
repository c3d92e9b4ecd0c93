// SPDX-License-Identifier: Apache-2.0
//
// The text of an admin request, from a peer without rights and from one with them, against an agent
// inside this process. Every answer is a JSON object.
#include <json/reader.h>

#include <thread>

#include "agent/agent.h"
#include "bytes.h"
#include "shm/messages.h"

namespace {

using mc::fuzz::require;

struct Rig {
  Rig() {
    const auto options =
        mc::agent::load_embedded_options("pool_bytes=1MiB\nmax_pool_bytes=2MiB\nlog_level=off\n");
    require(options.has_value());
    agent = std::move(*mc::agent::Agent::create_embedded(*options));
    std::thread([this] { agent->run(); }).detach();
    socket = std::move(*agent->connect_embedded());
  }
  std::unique_ptr<mc::agent::Agent> agent;
  mc::Fd socket;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Rig* const rig = new Rig;
  size = std::min(size, mc::shm::kMaxControlBytes - sizeof(mc::shm::ControlHeader));
  mc::shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(mc::shm::ControlType::kAdmin);
  header.text_bytes = static_cast<std::uint32_t>(size);
  std::vector<std::byte> request(sizeof header + size);
  std::memcpy(request.data(), &header, sizeof header);
  if (size > 0) std::memcpy(request.data() + sizeof header, data, size);
  require(mc::send_message(rig->socket.get(), request).ok());
  std::string answer;
  for (bool more = true; more;) {
    const auto message = mc::receive_message(rig->socket.get(), mc::shm::kMaxControlBytes);
    require(message && !message->bytes.empty());
    std::string_view part;
    const auto head = mc::shm::decode_control<mc::shm::ControlHeader>(
        message->bytes, mc::shm::ControlType::kAdminAnswer, &part);
    require(head.has_value());
    answer += part;
    more = head->value == 1;
  }
  Json::Value value;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  require(reader->parse(answer.data(), answer.data() + answer.size(), &value, nullptr) &&
          value.isObject());
  // A namespace made by the last input would make the next ones another test.
  if (value.isMember("namespace") && value["namespace"].asString() != "default") {
    const std::string drop =
        R"({"verb":"drop_namespace","name":")" + value["namespace"].asString() + "\"}";
    return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(drop.data()), drop.size());
  }
  return 0;
}
