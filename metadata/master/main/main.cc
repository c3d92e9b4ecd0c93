// SPDX-License-Identifier: Apache-2.0
//
// mc-master: parses its options, then runs a Master until SIGTERM.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <iostream>
#include <thread>

#include "libmc/options/command_line.h"
#include "mc/mc.h"
#include "metadata/master/http/http_ports.h"
#include "metadata/master/master.h"

namespace {

constexpr const char* kAbout =
    "Knows which agents of a cluster hold which objects. Run two or more masters with the same\n"
    "redis:// or etcd:// store: one master leads, the others stand by. A restart loses no object:\n"
    "agents report their objects again.\n\n"
    "Options come from the --config file, then the environment (MC_MASTER_LISTEN=...), then flags;\n"
    "later sources win.\n"
    "Signals: SIGTERM and SIGINT stop this master; a standby then leads within a second.\n"
    "Exit codes: 0 stopped, 1 could not start, 2 wrong usage.";

int run_master(const mc::metadata::MasterOptions& options) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  auto master = mc::metadata::Master::create(options);
  if (!master) {
    std::cerr << "mc-master: " << master.error().text() << "\n";
    return 1;
  }
  auto ports = mc::metadata::HttpPorts::open(options, **master);
  if (!ports) {
    std::cerr << "mc-master: " << ports.error().text() << "\n";
    return 1;
  }
  std::thread waiter([&] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    (*master)->stop();
  });
  spdlog::info("event=ready pid={} address={}", ::getpid(), (*master)->address());
  (*master)->run();
  waiter.join();
  ports->reset();
  master->reset();
  spdlog::info("event=stopped pid={}", ::getpid());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using mc::options::spelled;
  constexpr auto kFlag = mc::options::Spelling::kFlag;
  std::vector<mc::options::Flag> flags;
  const mc::metadata::MasterOptions defaults;
  for (const auto& row : mc::metadata::master_option_rows()) {
    const std::string name(row.name);
    flags.push_back({.name = spelled(name, kFlag),
                     .option = name,
                     .help = std::string(row.help) + "; " + row.domain.accepts() +
                             " (default: " + row.text_of(defaults) + ")"});
    if (!row.alias.empty()) flags.push_back({.name = spelled(row.alias, kFlag), .option = name});
  }
  const mc::options::CommandLine words =
      mc::options::parse_command_line({"mc-master", mc_version(), kAbout}, flags, argc, argv);
  if (words.exit_code) return *words.exit_code;
  const auto options = mc::metadata::load_master_options(words.config, words.flags, environ);
  if (!options) {
    std::cerr << "mc-master: " << options.error().text() << "\n";
    return 2;
  }
  auto logger = spdlog::stderr_logger_mt("mc-master");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(options->log_level));
  return run_master(*options);
}
