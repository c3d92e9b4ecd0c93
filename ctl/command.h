// SPDX-License-Identifier: Apache-2.0
//
// What it is: what every verb of mcctl gets and gives. A verb is one file with one register_…()
// function, called from main/main.cc; it adds a CLI11 subcommand whose callback does the work.
// Threads: the main one.
#pragma once

#include <cstdint>
#include <string>

#include <json/value.h>
#include <CLI/CLI.hpp>

#include "mc/mc.h"

namespace mc::ctl {

struct Context {
  std::string agent;                   // --agent: socket path; empty: the default one
  std::string name_space = "default";  // --namespace
  std::uint64_t timeout_ms = 5000;     // --timeout-ms
  bool json = false;                   // --json
  bool wait_announced = false;         // that nobody answers yet was said, once is enough
  int exit_code = 0;                   // 0 ok, 1 failed, 2 usage, 3 not found
};

void register_status(CLI::App& app, Context& context);
void register_objects(CLI::App& app, Context& context);  // ls stat put get rm exists
void register_segment(CLI::App& app, Context& context);
void register_cluster(CLI::App& app, Context& context);  // cluster nodes where replicate drain ping
void register_rails(CLI::App& app, Context& context);
void register_top(CLI::App& app, Context& context);
void register_topo(CLI::App& app, Context& context);
void register_config(CLI::App& app, Context& context);
void register_doctor(CLI::App& app, Context& context);
void register_completion(CLI::App& app, Context& context);
void register_bench(CLI::App& app, Context& context);
void register_replay(CLI::App& app, Context& context);

}  // namespace mc::ctl
