// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/admin.h"

#include <json/reader.h>
#include <json/writer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "shm/messages.h"

namespace mc::client {

namespace {
constexpr std::size_t kMaxAnswerBytes = 64u << 20;
}

std::string default_agent_socket() {
  if (const char* named = std::getenv("MC_AGENT"); named != nullptr && named[0] != '\0')
    return named;
  struct stat status {};
  const std::string system = "/run/mc/agent.sock";
  if (::stat(system.c_str(), &status) == 0) return system;
  const bool closed = errno == EACCES;
  std::string own = "/dev/shm/mc-" + std::to_string(::geteuid()) + "/agent.sock";
  // The error about the closed directory names the remedy.
  return closed && ::stat(own.c_str(), &status) != 0 ? system : own;
}

namespace {

Result<Json::Value> parsed(const std::string& answer) {
  Json::CharReaderBuilder builder;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  if (!reader->parse(answer.data(), answer.data() + answer.size(), &value, &errors)) {
    return fail(MC_VERSION_MISMATCH, "the agent's answer is not JSON: " + errors);
  }
  if (value.isObject() && value.isMember("error")) {
    return fail(static_cast<mc_status>(value["code"].asInt()), value["cause"].asString());
  }
  return value;
}

Result<std::string> exchange(const Fd& socket, std::string_view text, std::uint64_t timeout_ns) {
  shm::ControlHeader header;
  header.type = static_cast<std::uint32_t>(shm::ControlType::kAdmin);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes(sizeof header + text.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, text.data(), text.size());
  if (Status status = send_message(socket.get(), bytes); !status.ok()) return fail(status);

  std::string answer;
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (bool more = true; more;) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns || !wait_readable(socket.get(), deadline_ns - now)) {
      return fail(MC_TIMEOUT, "the agent did not answer in time; see its log");
    }
    auto message = receive_message(socket.get(), shm::kMaxControlBytes);
    if (!message) return fail(message.error());
    std::string_view part;
    const auto head = shm::decode_control<shm::ControlHeader>(
        message->bytes, shm::ControlType::kAdminAnswer, &part);
    if (!head) {
      const auto refused =
          shm::decode_control<shm::ControlHeader>(message->bytes, shm::ControlType::kAnswer, &part);
      if (refused) return fail(static_cast<mc_status>(refused->status), std::string(part));
      return fail(MC_AGENT_UNAVAILABLE, "the agent closed the connection; see its log");
    }
    answer += part;
    if (answer.size() > kMaxAnswerBytes) return fail(MC_TOO_LARGE, "an answer without end");
    more = head->value != 0;
  }
  return answer;
}

}  // namespace

Result<Json::Value> admin_call(const std::string& socket_path, const Json::Value& request,
                               std::uint64_t timeout_ns, Absent absent) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  auto socket = connect_unix(socket_path, absent == Absent::kWait ? timeout_ns : 0);
  if (!socket) return fail(socket.error());
  const std::uint64_t now = now_ns();
  timeout_ns = deadline_ns > now ? deadline_ns - now : 0;
  Json::StreamWriterBuilder writer;
  writer["indentation"] = "";
  auto answer = exchange(*socket, Json::writeString(writer, request), timeout_ns);
  if (!answer) return fail(answer.error());
  return parsed(*answer);
}

Result<std::string> admin_exchange(const Fd& connection, std::string_view request,
                                   std::uint64_t timeout_ns) {
  auto answer = exchange(connection, request, timeout_ns);
  if (!answer) return fail(answer.error());
  if (auto value = parsed(*answer); !value) return fail(value.error());
  return answer;
}

}  // namespace mc::client
