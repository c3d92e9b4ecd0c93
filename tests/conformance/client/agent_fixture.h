// SPDX-License-Identifier: Apache-2.0
//
// The base of the client suite: an agent of the wanted kind (a separate process, or
//   inside this process), clients of the agent, and helpers for frequent steps.
// Threads: the test's thread. Threads of a test may call put() and get().
// Owns: the agent's process and directory, and the opened clients.
// Trusts: nothing that a test asserts. A watchdog ends a test that hangs.
#pragma once

#include <gtest/gtest.h>
#include <json/value.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mc/mc.h"
#include "patience.h"

namespace mc::conformance {

enum class Place { kProcess, kEmbedded };
enum class Mode { kDirect, kIsolated };
struct Setting {
  Place place;
  Mode mode;
};
std::string setting_name(const testing::TestParamInfo<Setting>& info);

// Options of the agent, by name.
using AgentOptions = std::map<std::string, std::string>;

inline constexpr std::uint64_t kMiB = 1u << 20;

// A real mc-agent in a separate directory. A second start() starts the next agent of that
// directory.
class AgentProcess {
 public:
  AgentProcess();
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  // Returns when the agent accepts connections and its pools have their memory, or when the agent
  // has died at a failpoint.
  void start(const AgentOptions& options);
  void start() { start(options_); }
  void kill_hard() { end(9); }
  void upgrade() { end(12); }  // SIGUSR2: the next agent takes over the memory
  void stop() { end(15); }
  // The next agents die at this failpoint (tests/README.md); empty: none.
  void arm(std::string failpoint) { failpoint_ = std::move(failpoint); }
  // For an agent that dies at a failpoint, or ends by itself: whether the agent has ended; a wait until
  // then. Returns the wait status.
  bool has_ended() const;
  void wait_until_killed();
  int wait_for_end();
  // Stops and continues the process. Returns when the process has stopped.
  void pause(bool paused);
  bool running() const { return pid_ > 0; }
  int pid() const { return pid_; }
  const std::string& directory() const { return directory_; }
  std::string socket() const { return directory_ + "/agent.sock"; }
  std::string log() const;

 private:
  void end(int signal);

  std::string directory_;
  AgentOptions options_;
  std::string failpoint_;
  int pid_ = 0;
};

// Runs the steps in a child process. Returns the number of the first failed step, 0 if none failed, or the
// signal + 1000.
int in_child(const std::vector<std::function<bool()>>& steps);
mc_slice slice(std::string_view text);
// Bytes that belong to a key: every byte depends on the key and the byte's offset.
std::string content(std::string_view key, std::size_t size);

class ClientTest : public testing::TestWithParam<Setting> {
 public:
  ClientTest();
  ~ClientTest() override;

  bool embedded() const { return setting().place == Place::kEmbedded; }
  bool isolated() const { return setting().mode == Mode::kIsolated; }

  // Sets the agent's options and starts an agent process. Default: a pool of 64 MiB.
  void serve(AgentOptions options = {});
  AgentProcess& agent() { return *agent_; }

  // Opens a client, which is closed at the end of the test. change may alter the options.
  mc_client* open(const std::function<void(mc_open_options&)>& change = {});
  mc_status try_open(mc_client** client, const std::function<void(mc_open_options&)>& change = {});
  void close(mc_client* client);

  // Only with an agent process: waits until each pool has its memory, as after serve().
  void wait_for_memory();
  // Only with an agent process: the answer to an admin verb, and the default namespace's part of
  // the status.
  Json::Value ask(const Json::Value& request);
  Json::Value tenant(const std::string& name = "default");
  // The only session of the agent.
  Json::Value session();

 private:
  Setting setting() const { return GetParam(); }

  AgentOptions options_;
  std::string embedded_config_;
  std::unique_ptr<AgentProcess> agent_;
  std::vector<mc_client*> clients_;
};
// Tests that need an agent process: two clients, restarts, admin verbs.
class AgentTest : public ClientTest {};

// ---- Short words ------------------------------------------------------------------------------

mc_status put(mc_client* client, std::string_view key, std::string_view value,
              const mc_put_options* options = nullptr);
mc_put_options put_options(mc_pin pin = MC_PIN_NONE, std::uint64_t timeout_ns = 0);
// nullopt: the status is not MC_OK.
std::optional<std::string> get(mc_client* client, std::string_view key);
mc_status exists(mc_client* client, std::string_view key);
mc_status remove(mc_client* client, std::string_view key);
mc_stat_info stat(mc_client* client, std::string_view key);
std::string bytes_of(const mc_view& view);
// Cuts text into pieces of the given sizes, in a cycle.
std::vector<mc_slice> cut(std::string_view text, const std::vector<std::size_t>& sizes);
// Checks for the wanted status and, unless that is MC_OK, a text in mc_last_error().
testing::AssertionResult says(mc_status wanted, mc_status got);

// Repeats the check until it holds, under the test's watchdog.
void until(const std::function<bool()>& holds);

// Puts objects of this size, named prefix + number, until the first key is gone.
std::size_t push_out(mc_client* client, std::string_view victim, std::size_t size,
                     const std::string& prefix = "push.");

}  // namespace mc::conformance

#define MC_EVERYWHERE(fixture)                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                            \
      , fixture,                                                                       \
      testing::Values(::mc::conformance::Setting{::mc::conformance::Place::kProcess,   \
                                                 ::mc::conformance::Mode::kDirect},    \
                      ::mc::conformance::Setting{::mc::conformance::Place::kProcess,   \
                                                 ::mc::conformance::Mode::kIsolated},  \
                      ::mc::conformance::Setting{::mc::conformance::Place::kEmbedded,  \
                                                 ::mc::conformance::Mode::kDirect},    \
                      ::mc::conformance::Setting{::mc::conformance::Place::kEmbedded,  \
                                                 ::mc::conformance::Mode::kIsolated}), \
      ::mc::conformance::setting_name)
#define MC_WITH_AGENT(fixture)                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                            \
      , fixture,                                                                       \
      testing::Values(::mc::conformance::Setting{::mc::conformance::Place::kProcess,   \
                                                 ::mc::conformance::Mode::kDirect},    \
                      ::mc::conformance::Setting{::mc::conformance::Place::kProcess,   \
                                                 ::mc::conformance::Mode::kIsolated}), \
      ::mc::conformance::setting_name)
