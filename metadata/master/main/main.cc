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
    R"(mc-master knows which agents of a cluster hold which objects. Run two or more masters with the
same redis:// or etcd:// store: one master leads, the others stand by. A restart loses no object:
agents report their objects again.

Options come from the file of --config (TOML), then the environment (MC_MASTER_LISTEN=...), then
flags; later sources win. A relative path starts at the working directory. In a file, a relative path
starts at the folder of the file.)";

constexpr const char* kFooter = R"(SIGNALS
  SIGTERM, SIGINT  stop this master; a standby then leads within a second

FILES
  /etc/mc/master.toml  the configuration of the unit mc-master.service

EXIT STATUS
  0 stopped; 1 could not start; 2 wrong usage)";

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
    flags.push_back(
        {.name = spelled(name, kFlag),
         .option = name,
         .help = mc::options::with_default(std::string(row.help) + "; " + row.domain.accepts(),
                                           row.text_of(defaults)),
         .type = row.domain.type()});
    if (!row.alias.empty()) flags.push_back(mc::options::earlier_flag(row.alias, row.name));
  }
  const mc::options::Program program{.name = "mc-master",
                                     .version = mc_version(),
                                     .summary = "master of a cluster of KV-cache pools",
                                     .about = kAbout,
                                     .footer = kFooter,
                                     .pages = {"mcctl.1", "mc-agent.8"}};
  const mc::options::CommandLine words =
      mc::options::parse_command_line(program, flags, argc, argv);
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
