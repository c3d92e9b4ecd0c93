// SPDX-License-Identifier: Apache-2.0
//
// mc-master: parses its options, then runs a Master until SIGTERM.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <thread>

#include "libmc/log/program_log.h"
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

int run_master(const mc::metadata::MasterOptions& options, const mc::log::ProgramLog& log) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  auto master = mc::metadata::Master::create(options);
  if (!master) {
    log.report_failure(master.error().text());
    return 1;
  }
  auto ports = mc::metadata::HttpPorts::open(options, **master);
  if (!ports) {
    log.report_failure(ports.error().text());
    return 1;
  }
  std::thread waiter([&] {
    int signal = 0;
    ::sigwait(&signals, &signal);
    (*master)->stop();
  });
  spdlog::info("event=ready pid={} address={}", ::getpid(), (*master)->address());
  ::sd_notify(0, "READY=1");
  (*master)->run();
  ::sd_notify(0, "STOPPING=1");
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
  const mc::log::ProgramLog log("mc-master");
  const auto options = mc::metadata::load_master_options(words.config, words.flags, environ);
  if (!options) {
    log.report_failure(options.error().text());
    return 2;
  }
  spdlog::set_level(spdlog::level::from_str(options->log_level));
  return run_master(*options, log);
}
