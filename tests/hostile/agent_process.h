// SPDX-License-Identifier: Apache-2.0
//
// A real mc-agent in a new directory, observed from outside.
// Threads: the test's. Owns: the process and the directory.
#pragma once

#include <json/value.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "patience.h"

namespace mc::hostile {

// A new directory with mode 0700.
std::string make_directory();
void remove_directory(const std::string& path);

struct Ended {
  int exit_code = -1;  // 128 + number of the signal that ended the process
  std::string output;  // stdout and stderr
};
// Runs a program to its end, or kills it at the watchdog (exit code 137).
Ended run_program(const std::vector<std::string>& arguments);
// Path of a program of this build.
std::string program(const std::string& name);

class AgentProcess {
 public:
  // flags: in addition to --runtime-dir, --pool-bytes and --keep-seconds.
  explicit AgentProcess(const std::vector<std::string>& flags = {},
                        const std::string& pool_bytes = "64MiB");
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& directory() const { return directory_; }
  std::string socket() const { return directory_ + "/agent.sock"; }
  bool alive() const;
  std::size_t fd_count() const;
  // A line of /proc/PID/status in KiB: "VmRSS", "RssAnon".
  std::uint64_t memory_kib(const std::string& line) const;
  // The answer to an admin verb; null without an answer.
  Json::Value ask(const std::string& verb) const;
  // The answer to a verb with arguments.
  Json::Value order(const Json::Value& request) const;
  std::string log() const;
  // Ends the agent with SIGTERM and returns the exit code.
  int stop();
  // Kills the agent, and starts the next one.
  void crash();

 private:
  void start_agent();

  std::vector<std::string> arguments_;
  std::string directory_;
  pid_t pid_ = -1;
};

}  // namespace mc::hostile
