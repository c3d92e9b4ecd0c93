// SPDX-License-Identifier: Apache-2.0
//
// mc-gpu: the worker of a device. Opens the device, connects to the agent, and serves until the agent
// ends.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <charconv>

#include "agent/gpu/worker.h"
#include "libmc/log/program_log.h"
#include "libmc/options/command_line.h"
#include "mc/mc.h"
#include "shm/messages.h"

namespace {

constexpr const char* kAbout =
    R"(mc-gpu copies between the memory of a GPU and this host's pool. Run one for each GPU, as the
agent's user or as root. The agent needs no access to the device. A client that dies under a copy, or
a driver that fails, ends mc-gpu at most: start it again, as mc-gpu@.service does.)";

constexpr const char* kFooter = R"(EXIT STATUS
  0 the agent ended; 1 the device or the agent failed; 2 wrong usage, no driver, or no such GPU)";

constexpr std::uint64_t kConnectNs = 10'000'000'000;

mc::Result<mc::Fd> connect_to_agent(const std::string& socket) {
  auto link = mc::connect_unix(socket, kConnectNs);
  if (!link) return link;
  mc::shm::ControlHeader hello;
  hello.type = static_cast<std::uint32_t>(mc::shm::ControlType::kGpuWorker);
  const mc::Status sent = mc::send_message(link->get(), std::as_bytes(std::span(&hello, 1)));
  if (!sent.ok()) return mc::fail(sent);
  return link;
}

mc::Status run(const std::string& socket, int device) {
  const mc::device::Driver* const driver = mc::device::Driver::find();
  if (driver == nullptr) {
    return {MC_UNSUPPORTED, "this host has no driver for GPUs (libcuda.so.1); install NVIDIA's"};
  }
  using mc::device::Calls;
  if (mc::Status status = driver->call<&Calls::init>(0U); !status.ok()) return status;
  int count = 0;
  if (mc::Status status = driver->call<&Calls::get_device_count>(&count); !status.ok()) {
    return status;
  }
  if (device >= count) {
    return {MC_INVALID_ARGUMENT, "this host has " + std::to_string(count) +
                                     " GPUs, numbered from 0; there is no GPU " +
                                     std::to_string(device)};
  }
  auto link = connect_to_agent(socket);
  if (!link) return link.error();
  auto worker = mc::gpu::Worker::create(*driver, device, std::move(*link));
  if (!worker) return worker.error();
  spdlog::info("event=ready pid={} device={}", ::getpid(), device);
  ::sd_notify(0, "READY=1");
  return (*worker)->run();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<mc::options::Flag> flags = {
      {.name = "--socket",
       .option = "socket",
       .help = "the agent's socket (default: /run/mc/agent.sock)",
       .type = "PATH"},
      {.name = "--device",
       .option = "device",
       .help = "number of the GPU, as nvidia-smi shows it (default: 0)",
       .type = "N"},
  };
  const mc::options::Program program{.name = "mc-gpu",
                                     .version = mc_version(),
                                     .summary = "worker of a GPU for a pool of KV cache",
                                     .about = kAbout,
                                     .footer = kFooter,
                                     .pages = {"mc-agent.8", "mcctl.1"}};
  const mc::options::CommandLine words =
      mc::options::parse_command_line(program, flags, argc, argv);
  if (words.exit_code) return *words.exit_code;
  const mc::log::ProgramLog log("mc-gpu");
  std::string socket = "/run/mc/agent.sock";
  int device = 0;
  for (const auto& [option, text] : words.flags) {
    if (option == "socket") socket = text;
    if (option != "device") continue;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
    if (error != std::errc() || end != text.data() + text.size() || device < 0) {
      log.report_failure("--device needs the number of a GPU, not '" + text + "'");
      return 2;
    }
  }
  ::signal(SIGPIPE, SIG_IGN);
  const mc::Status status = run(socket, device);
  if (status.ok()) return 0;
  log.report_failure(status.text());
  return status.code() == MC_UNSUPPORTED || status.code() == MC_INVALID_ARGUMENT ? 2 : 1;
}
