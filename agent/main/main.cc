// SPDX-License-Identifier: Apache-2.0
//
// mc-agent: parses its options, then runs an Agent until SIGTERM.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "agent/agent.h"
#include "agent/cluster/master/inner_master.h"
#include "agent/cluster/open_cluster.h"
#include "agent/metrics/metrics_port.h"
#include "libmc/log/program_log.h"
#include "libmc/options/command_line.h"
#include "libmc/options/option_row.h"

namespace {

constexpr const char* kAbout =
    R"(mc-agent owns this host's pool of the KV cache and serves the pool to the processes of the host.

Options come from the file of --config, then the environment (MC_AGENT_POOL_BYTES=...), then flags;
later sources win. Sizes take KiB, MiB, GiB, TiB. A relative path starts at the working directory. In
a file, a relative path starts at the folder of the file.

The file is TOML, with lines such as pool_bytes = "4GiB", and a table [[namespace]] for each
namespace beside "default".)";

constexpr const char* kFooter = R"(SIGNALS
  SIGTERM, SIGINT  stop the agent and free the pool. With tier_paths, the agent first writes the pool's
                   objects to the disks; a second signal ends the agent at once
  SIGUSR2          stops the agent and leaves the pool to the next agent (upgrade); after a crash,
                   too, the next agent finds all objects

FILES
  /etc/mc/agent.toml  the configuration of the unit mc-agent.service

EXIT STATUS
  0 stopped; 1 could not start; 2 wrong usage; 3 another process serves as this node of the cluster)";

constexpr int kFencedExit = 3;  // systemd/mc-agent.service: no restart

int run_agent(mc::agent::LoadedOptions options, const mc::log::ProgramLog& log) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<mc::agent::InnerMaster> master;
  if (const std::string& listen = options.options.master_listen; !listen.empty()) {
    auto started = mc::agent::InnerMaster::start(options.options);
    if (!started) {
      log.report_failure(started.error().text());
      return 1;
    }
    master = std::move(*started);
    if (options.options.masters.empty() && options.options.cluster_store.empty()) {
      options.options.masters = listen;
    }
  }
  auto agent = mc::agent::Agent::create(options, mc::agent::open_cluster, &log.recent());
  if (!agent) {
    log.report_failure(agent.error().text());
    return 1;
  }
  const auto metrics = mc::agent::MetricsPort::open(options.options);
  if (!metrics) {
    log.report_failure(metrics.error().text());
    return 1;
  }
  std::atomic<bool> ended{false};
  std::thread waiter([&] {
    // The second signal ends an agent that is writing its pools to disks.
    for (int signal = 0; !ended;) {
      ::sigwait(&signals, &signal);
      (*agent)->stop(signal == SIGUSR2);
    }
  });
  spdlog::info("event=ready pid={} socket={}", ::getpid(), options.options.socket);
  ::sd_notify(0, "READY=1");
  const mc::Status status = (*agent)->run();
  ::sd_notify(0, "STOPPING=1");
  ended = true;
  ::kill(::getpid(), SIGTERM);  // the thread waits
  waiter.join();
  if (!status.ok()) spdlog::error("event=fenced cause=\"{}\"", status.text());
  spdlog::info("event=stopped pid={}", ::getpid());
  return status.ok() ? 0 : kFencedExit;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kKeeper = "keeper";  // starts the keeper instead of an agent
  std::vector<mc::options::Flag> flags{
      {.name = "--keeper", .option = std::string(kKeeper), .takes_value = false}};
  for (const mc::agent::OptionText& option : mc::agent::option_table()) {
    flags.push_back({.name = mc::options::spelled(option.name, mc::options::Spelling::kFlag),
                     .option = option.name,
                     .help = mc::options::with_default(option.help, option.default_value),
                     .type = option.type});
    if (!option.alias.empty()) {
      flags.push_back(mc::options::earlier_flag(option.alias, option.name));
    }
  }
  const mc::options::Program program{.name = "mc-agent",
                                     .version = mc_version(),
                                     .summary = "agent of a KV-cache pool",
                                     .about = kAbout,
                                     .footer = kFooter,
                                     .pages = {"mcctl.1", "mc-master.8"}};
  mc::options::CommandLine words = mc::options::parse_command_line(program, flags, argc, argv);
  if (words.exit_code) return *words.exit_code;
  const bool keeper =
      std::erase_if(words.flags, [&](const auto& flag) { return flag.first == kKeeper; }) > 0;
  auto options = mc::agent::load_options(words.config, words.flags, environ);
  // The keeper logs nothing, and forks: no thread of a log may run there.
  if (keeper && options) {
    return mc::agent::run_keeper(options->options.runtime_dir, options->options.keep_seconds);
  }
  const mc::log::ProgramLog log("mc-agent");
  if (!options) {
    log.report_failure(options.error().text());
    return 2;
  }
  spdlog::set_level(spdlog::level::from_str(options->options.log_level));
  return run_agent(*options, log);
}
