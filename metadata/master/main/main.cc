// SPDX-License-Identifier: Apache-2.0
//
// mc-master: parses its options, then runs a Master until SIGTERM.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <thread>

#include "mc/mc.h"
#include "metadata/master/master.h"

namespace {

constexpr const char* kAbout =
    "Knows which agents of a cluster hold which objects. Run two or more masters with the same\n"
    "redis:// or etcd:// store: one master leads, the others stand by. A restart loses no object:\n"
    "agents report their objects again.\n\n"
    "Options come from the --config file, then the environment (MC_MASTER_LISTEN=...), then flags;\n"
    "later sources win.\n"
    "Signals: SIGTERM and SIGINT stop this master; a standby then leads at once.\n"
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
  std::thread waiter([&] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    (*master)->stop();
  });
  spdlog::info("event=ready pid={} address={}", ::getpid(), (*master)->address());
  (*master)->run();
  waiter.join();
  master->reset();
  spdlog::info("event=stopped pid={}", ::getpid());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{kAbout, "mc-master"};
  app.set_version_flag("--version", std::string("mc-master ") + mc_version());
  std::string config;
  app.add_option("--config", config, "TOML file with options");
  std::vector<std::pair<std::string, std::string>> flags;
  const mc::metadata::MasterOptions defaults;
  for (const auto& row : mc::metadata::master_option_rows()) {
    const std::string name(row.name);
    const auto set = [&flags, name](const std::string& text) { flags.emplace_back(name, text); };
    if (!row.alias.empty()) {
      app.add_option_function<std::string>(
             mc::options::spelled(row.alias, mc::options::Spelling::kFlag), set)
          ->group("");  // hidden
    }
    app.add_option_function<std::string>(mc::options::spelled(name, mc::options::Spelling::kFlag),
                                         set,
                                         std::string(row.help) + "; " + row.domain.accepts() +
                                             " (default: " + row.text_of(defaults) + ")");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto options = mc::metadata::load_master_options(config, flags, environ);
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
