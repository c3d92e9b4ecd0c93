// SPDX-License-Identifier: Apache-2.0
//
// The access of a verb to the agent: requests as JSON, the counters page, and a session
//   of libmc.
// Threads: the main thread.
// Owns: a ClientSession owns its client.
// Trusts: nothing; answers are read through ctl/text/json.h, and the counters page through a
//   bounded reader.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <json/forwards.h>

#include "ctl/command.h"
#include "mc/status.h"

namespace mc::ctl {

std::string socket_path(const Context& context);

// Nullopt: the agent did not answer; the failure was reported.
std::optional<Json::Value> ask_agent(Context& context, const std::string& verb,
                                     const Json::Value& request);

struct ClientCloser {
  void operator()(mc_client* client) const { mc_close(client); }
};
using Client = std::unique_ptr<mc_client, ClientCloser>;

Result<Client> open_session(const mc_open_options& options);

// The answer of the client's agent, embedded or not, to the verb "status".
Result<Json::Value> ask_status(mc_client* client);

// The agent's counters, from the memory file that stays readable while the agent is dead: an object
// of names and numbers, perhaps with nested objects. path: the runtime directory, or the agent's
// socket in that directory. Nullopt: the page does not exist, is not valid, or is not readable.
std::optional<Json::Value> read_counters_page(const std::string& path);

class ClientSession {
 public:
  // Opens a session in the namespace of the context. After a failure, which is reported, client()
  // is null.
  ClientSession(Context& context, const std::string& verb);
  ~ClientSession() { mc_close(client_); }
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  mc_client* client() const { return client_; }

 private:
  mc_client* client_ = nullptr;
};

// Of a request.
inline std::uint64_t timeout_ms(const Context& context) {
  constexpr std::uint64_t kUsualMs = 5000;
  return context.timeout_ms != 0 ? context.timeout_ms : kUsualMs;
}
inline std::uint64_t timeout_ns(const Context& context) { return timeout_ms(context) * 1000000u; }

// If no agent listens at the socket yet, tells so once on a terminal: the next call will wait.
void announce_wait(Context& context);

}  // namespace mc::ctl
