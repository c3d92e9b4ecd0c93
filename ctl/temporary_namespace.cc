// SPDX-License-Identifier: Apache-2.0
#include "ctl/temporary_namespace.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "ctl/text/json.h"
#include "libmc/base/clock.h"
#include "libmc/client/admin.h"

namespace mc::ctl {

namespace {
// Without a session for so long, the agent drops the namespace.
constexpr unsigned kDropUnusedSeconds = 60;
}  // namespace

TemporaryNamespace::TemporaryNamespace(std::string socket, std::string name,
                                       std::uint64_t timeout_ns)
    : socket_(std::move(socket)), name_(std::move(name)), timeout_ns_(timeout_ns) {}

TemporaryNamespace::TemporaryNamespace(TemporaryNamespace&& other) noexcept
    : socket_(std::move(other.socket_)),
      name_(std::exchange(other.name_, {})),
      timeout_ns_(other.timeout_ns_) {}

TemporaryNamespace::~TemporaryNamespace() {
  [[maybe_unused]] const Status dropped = drop();  // a destructor cannot report an error
}

Result<TemporaryNamespace> TemporaryNamespace::create(const std::string& agent_socket,
                                                      const NamespacePlan& plan,
                                                      std::uint64_t timeout_ns) {
  Json::Value request;
  request["verb"] = "create_namespace";
  request["name"] = plan.name;
  request["pool_bytes"] = Json::UInt64{plan.pool_bytes};
  request["capacity_bytes"] = Json::UInt64{plan.capacity_bytes};
  request["policy"] = plan.policy;
  request["clustered"] = plan.clustered;
  // Other hosts use a namespace of a cluster without a session here.
  if (!plan.clustered) request["drop_unused_s"] = kDropUnusedSeconds;
  const Result<Json::Value> answer =
      client::admin_call(agent_socket, request, timeout_ns, client::Absent::kWait);
  if (!answer) return fail(answer.error());
  return TemporaryNamespace(agent_socket, plan.name, timeout_ns);
}

std::optional<NamespaceState> state_of_namespace(const std::string& agent_socket,
                                                 const std::string& name,
                                                 std::uint64_t timeout_ns) {
  Json::Value request;
  request["verb"] = "status";
  const Result<Json::Value> answer = client::admin_call(agent_socket, request, timeout_ns);
  if (!answer) return std::nullopt;
  for (const Json::Value& entry : array_field(*answer, "namespaces")) {
    if (text_field(entry, "name") != name) continue;
    return NamespaceState{.policy = text_field(entry, "policy"),
                          .objects = number_field(entry, "objects"),
                          .used_bytes = number_field(entry, "used_bytes"),
                          .evictions = number_field(entry, "evictions")};
  }
  return std::nullopt;
}

void TemporaryNamespace::wait_until_grown(std::uint64_t timeout_ns) const {
  constexpr int kAskEveryMs = 20;
  const auto is_growing = [this] {
    Json::Value request;
    request["verb"] = "segments";
    const Result<Json::Value> answer = client::admin_call(socket_, request, timeout_ns_);
    if (!answer) return false;
    return std::ranges::any_of(array_field(*answer, "segments"), [this](const Json::Value& entry) {
      const Json::Value& settled = field(entry, "settled");
      return text_field(entry, "namespace") == name_ && settled.isBool() && !settled.asBool();
    });
  };
  const std::uint64_t until_ns = now_ns() + timeout_ns;
  while (now_ns() < until_ns && is_growing()) ::poll(nullptr, 0, kAskEveryMs);
}

Status TemporaryNamespace::drop() {
  if (name_.empty()) return {};
  Json::Value request;
  request["verb"] = "drop_namespace";
  request["name"] = std::exchange(name_, {});
  const Result<Json::Value> answer = client::admin_call(socket_, request, timeout_ns_);
  return answer ? Status() : answer.error();
}

}  // namespace mc::ctl
