// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/target.h"

#include <json/value.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

std::uint64_t number(const Json::Value& object, const char* name) {
  const Json::Value& value = object[name];
  return value.isUInt64() ? value.asUInt64() : 0;
}

std::string text(const Json::Value& object, const char* name) {
  const Json::Value& value = object[name];
  return value.isString() ? value.asString() : std::string();
}

}  // namespace

ReplayNamespace::ReplayNamespace(std::string socket, std::string name, std::uint64_t timeout_ns)
    : socket_(std::move(socket)), name_(std::move(name)), timeout_ns_(timeout_ns) {}

ReplayNamespace::ReplayNamespace(ReplayNamespace&& other) noexcept
    : socket_(std::move(other.socket_)),
      name_(std::exchange(other.name_, {})),
      timeout_ns_(other.timeout_ns_) {}

ReplayNamespace::~ReplayNamespace() {
  [[maybe_unused]] const Status dropped = drop();  // a destructor cannot report an error
}

Result<ReplayNamespace> ReplayNamespace::create(const std::string& agent_socket,
                                                const NamespacePlan& plan,
                                                std::uint64_t timeout_ns) {
  Json::Value request;
  request["verb"] = "create_namespace";
  request["name"] = plan.name;
  request["pool_bytes"] = Json::UInt64{plan.pool_bytes};
  request["capacity_bytes"] = Json::UInt64{plan.capacity_bytes};
  request["policy"] = plan.policy;
  request["clustered"] = plan.clustered;
  const Result<Json::Value> answer = client::admin_call(agent_socket, request, timeout_ns);
  if (!answer) return fail(answer.error());
  return ReplayNamespace(agent_socket, plan.name, timeout_ns);
}

std::optional<NamespaceState> ReplayNamespace::state() const {
  Json::Value request;
  request["verb"] = "status";
  const Result<Json::Value> answer = client::admin_call(socket_, request, timeout_ns_);
  if (!answer || !answer->isObject() || !(*answer)["namespaces"].isArray()) return std::nullopt;
  for (const Json::Value& entry : (*answer)["namespaces"]) {
    if (!entry.isObject() || text(entry, "name") != name_) continue;
    return NamespaceState{.policy = text(entry, "policy"),
                          .objects = number(entry, "objects"),
                          .used_bytes = number(entry, "used_bytes"),
                          .evictions = number(entry, "evictions")};
  }
  return std::nullopt;
}

void ReplayNamespace::wait_until_grown(std::uint64_t timeout_ns) const {
  constexpr int kAskEveryMs = 20;
  const auto is_growing = [this] {
    Json::Value request;
    request["verb"] = "segments";
    const Result<Json::Value> answer = client::admin_call(socket_, request, timeout_ns_);
    if (!answer || !answer->isObject() || !(*answer)["segments"].isArray()) return false;
    return std::ranges::any_of((*answer)["segments"], [this](const Json::Value& entry) {
      return entry.isObject() && text(entry, "namespace") == name_ && entry["settled"].isBool() &&
             !entry["settled"].asBool();
    });
  };
  const std::uint64_t until_ns = now_ns() + timeout_ns;
  while (now_ns() < until_ns && is_growing()) ::poll(nullptr, 0, kAskEveryMs);
}

Status ReplayNamespace::drop() {
  if (name_.empty()) return {};
  Json::Value request;
  request["verb"] = "drop_namespace";
  request["name"] = std::exchange(name_, {});
  const Result<Json::Value> answer = client::admin_call(socket_, request, timeout_ns_);
  return answer ? Status() : answer.error();
}

}  // namespace mc::ctl
