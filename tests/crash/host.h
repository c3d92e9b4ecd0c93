// SPDX-License-Identifier: Apache-2.0
//
// A host under test: an agent in a private runtime directory, restarted after every
//   kill, with access to the status and the keeper.
// Threads: the test's main thread.
// Owns: the agent, the keeper (ended with the host) and the directory.
#pragma once

#include <json/value.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "crash/child.h"
#include "mc/mc.h"

namespace mc::crash {

struct HostOptions {
  std::uint64_t pool_mib = 8;
  std::uint64_t max_pool_mib = 64;
  bool with_isolated = false;      // a second namespace, "iso", of 8 MiB
  std::vector<std::string> flags;  // further flags of the agent
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
  // Waits until the log contains the text: a thread of the agent writes the lines later.
  bool log_shows(const std::string& text) const;
  Child& agent() { return agent_; }
  HostOptions& options() { return options_; }  // of the next agent
  // Called repeatedly while a question waits for an answer.
  void while_waiting(std::function<void()> look) { look_ = std::move(look); }

  // environment: for failpoints. Does not wait until the agent serves.
  void start_agent(std::vector<std::string> environment = {}, int passed_fd = -1);
  // Starts an agent, and waits until its pools have their memory.
  void serve();
  void kill_agent();  // kill -9, and waits for the end
  // The keeper's pid, 0 for none.
  pid_t keeper() const;
  void kill_keeper();
  void stop();  // SIGTERM; agent and keeper end

  // Asks repeatedly until an agent answers. Null after the watchdog's time.
  Json::Value ask(const Json::Value& request);
  Json::Value status();
  // The namespace's part of status().
  Json::Value pool(const std::string& name = "default");
  Json::Value session_of(pid_t pid);  // null: none
  // Asks repeatedly until the status is as wanted. Returns false at the watchdog's time.
  bool status_becomes(const std::function<bool(const Json::Value&)>& wanted,
                      std::uint64_t timeout_ns = kWatchdogNs);
  // Memory files and pidfds that the keeper holds: the node's file, those of each namespace
  // (five parts of the index, one part of a small pool), a session's file and pidfd.
  static constexpr unsigned kNodeDescriptors = 1, kPoolDescriptors = 6, kSessionDescriptors = 2;
  unsigned kept_descriptors() const;
  // Waits until the keeper holds that many, because an agent returns the descriptors of a closed
  // session later. Returns the number at the end of the wait.
  unsigned await_descriptors(unsigned wanted);

 private:
  std::string directory_;
  HostOptions options_;
  Child agent_;
  std::function<void()> look_;
};

// The part of a status about a namespace.
Json::Value pool_in(const Json::Value& status, const std::string& name);
// A client in this process.
class OpenClient {
 public:
  // Null after a failure: see mc_last_error().
  explicit OpenClient(const Host& host, const std::string& name_space = "default");
  ~OpenClient() { mc_close(handle_); }
  OpenClient(const OpenClient&) = delete;
  OpenClient& operator=(const OpenClient&) = delete;
  mc_client* handle() const { return handle_; }

 private:
  mc_client* handle_ = nullptr;
};
// A client process of the given role.
Command client_command(const std::string& role, const Host& host,
                       std::vector<std::string> arguments = {});
// The check that every client must pass: live objects, reservations of living sessions, and
// limbo account for all used bytes. Waits until the agent has reclaimed its garbage. Empty: the
// check passed.
std::string accounting_error(Host& host, const std::string& name);
// A client of this process removes all objects of the namespace; then the pool must be empty.
std::string emptying_error(Host& host, const std::string& name);

}  // namespace mc::crash
