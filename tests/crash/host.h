// SPDX-License-Identifier: Apache-2.0
//
// What it is: a host under test: an agent in a runtime directory of its own, restarted whenever it
// is
//   killed, and what its status and its keeper say.
// Threads: the test's main thread. Owns: the agent, the keeper (ended with the host), the
// directory.
#pragma once

#include <json/value.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "crash/child.h"

namespace mc::crash {

struct HostOptions {
  std::uint64_t pool_mib = 8;
  std::uint64_t max_pool_mib = 64;
  bool with_isolated = false;      // a second namespace, "iso", of 8 MiB
  std::vector<std::string> flags;  // of the agent, beside the usual
};

class Host {
 public:
  explicit Host(const HostOptions& options = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const std::string& directory() const { return directory_; }
  std::string socket() const { return directory_ + "/agent.sock"; }
  std::string log() const { return directory_ + "/agent.log"; }
  std::string log_text() const;
  Child& agent() { return agent_; }
  // Called again and again while a question waits for its answer.
  void while_waiting(std::function<void()> look) { look_ = std::move(look); }

  // environment: for failpoints. Does not wait until it serves.
  void start_agent(std::vector<std::string> environment = {}, int passed_fd = -1);
  void kill_agent();  // kill -9, and waits for its end
  // The keeper's pid, 0 for none.
  pid_t keeper() const;
  void kill_keeper();
  void stop();  // SIGTERM; agent and keeper end

  // Asks, and asks again while no agent answers. Null after the watchdog.
  Json::Value ask(const Json::Value& request);
  Json::Value status();
  // The namespace's part of status().
  Json::Value pool(const std::string& name = "default");
  Json::Value session_of(pid_t pid);  // null: none
  // Asks for the status until it is as wanted. False: the watchdog came first.
  bool status_becomes(const std::function<bool(const Json::Value&)>& wanted,
                      std::uint64_t timeout_ns = kWatchdogNs);
  // Memory files and pidfds the keeper holds.
  unsigned kept_descriptors() const;

 private:
  std::string directory_;
  HostOptions options_;
  Child agent_;
  std::function<void()> look_;
};

// The part of a status about one namespace.
Json::Value pool_in(const Json::Value& status, const std::string& name);
// A client process of the given role.
Command client_command(const std::string& role, const Host& host,
                       std::vector<std::string> arguments = {});
// What any client must find: nothing of the pool is used that no live object, reservation of a
// living session, or limbo accounts for. Waits until the agent has put away what it can. Empty: all
// is well.
std::string accounting_error(Host& host, const std::string& name);
// All objects of the namespace are removed by a client of this process; the pool must be empty
// then.
std::string emptying_error(Host& host, const std::string& name);

}  // namespace mc::crash
