// SPDX-License-Identifier: Apache-2.0
//
// What it is: a verb's way to the agent: questions as JSON, and a session of libmc.
// Threads: the main one. A ClientSession owns its client.
// Trusts: nothing; answers are read through ctl/text/json.h.
#pragma once

#include <optional>
#include <string>

#include <json/value.h>

#include "ctl/command.h"
#include "mc/status.h"

namespace mc::ctl {

std::string socket_path(const Context& context);

// Nullopt: no answer; the failure was reported.
std::optional<Json::Value> ask_agent(Context& context, const std::string& verb,
                                     const Json::Value& request);

class ClientSession {
 public:
  // Opens a session in the context's namespace; a failure is reported, and client() is null.
  ClientSession(Context& context, const std::string& verb);
  ~ClientSession() { mc_close(client_); }
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  mc_client* client() const { return client_; }

 private:
  mc_client* client_ = nullptr;
};

inline std::uint64_t timeout_ns(const Context& context) { return context.timeout_ms * 1000000u; }

// On a terminal, says so once when nobody listens at the socket yet: the call that follows will
// wait.
void announce_wait(Context& context);

}  // namespace mc::ctl
