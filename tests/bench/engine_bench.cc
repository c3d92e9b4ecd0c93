// SPDX-License-Identifier: Apache-2.0
//
// The transfer engine over RDMA between two processes, with the devices that the environment variables
// MC_RDMA_DEVICES_A and _B name. Prints MB/s. tests/rdma/bench compares the results with ib_read_bw and
// ib_write_bw.
//
//   engine_bench read|write BYTES RAILS REQUESTS SECONDS      REQUESTS: under way at once
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "libmc/base/clock.h"
#include "mc/transfer.hpp"

namespace {

constexpr std::uint64_t kMemoryBytes = 64 << 20;
constexpr std::uint64_t kWarmUpNs = 1'000'000'000;  // in which lanes are opened and measured

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "engine_bench: %s\n", text.c_str());
  std::exit(1);
}

std::string first_devices(const char* variable, std::size_t count) {
  const char* const text = std::getenv(variable);
  std::istringstream stream(text != nullptr ? text : "");
  std::string list;
  for (std::string word; count > 0 && stream >> word; --count) {
    list += (list.empty() ? "" : ",") + word;
  }
  return list;
}

mc::TransferEngine open_engine(const std::string& devices, void* memory) {
  mc::TransferOptions options;
  options.transports = "rdma";
  options.devices = devices.c_str();
  options.same_host = false;
  options.rdma_ack_timeout = 18;
  options.timeout_ns = 60'000'000'000;
  auto engine = mc::TransferEngine::open(options);
  if (!engine) die(std::string(engine.error().text()));
  const mc::TransferRange range{memory, kMemoryBytes};
  const mc::Status status =
      engine->register_memory({&range, 1}, MC_TRANSFER_READ | MC_TRANSFER_WRITE);
  if (!status.ok()) die(std::string(status.text()));
  return std::move(*engine);
}

struct Told {
  char name[64];
  std::uint64_t address;
};

char* memory() {
  void* const at = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) die("no memory");
  return static_cast<char*>(at);
}

[[noreturn]] void serve(int out, std::size_t rails) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  char* const at = memory();
  const mc::TransferEngine engine = open_engine(first_devices("MC_RDMA_DEVICES_B", rails), at);
  Told told{};
  std::snprintf(told.name, sizeof told.name, "%s", engine.info().value().name);
  told.address = reinterpret_cast<std::uint64_t>(at);
  if (::write(out, &told, sizeof told) != sizeof told) die("the pipe is closed");
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) die("usage: engine_bench read|write BYTES RAILS REQUESTS SECONDS");
  const bool writes = std::strcmp(argv[1], "write") == 0;
  const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
  const auto rails = static_cast<std::size_t>(std::atoi(argv[3]));
  const auto requests = static_cast<std::size_t>(std::atoi(argv[4]));
  int pipe[2];
  if (::pipe(pipe) != 0) die("no pipe");
  const pid_t server = ::fork();
  if (server == 0) serve(pipe[1], rails);
  Told told{};
  if (::read(pipe[0], &told, sizeof told) != sizeof told) die("no server");
  char* const at = memory();
  mc::TransferEngine engine = open_engine(first_devices("MC_RDMA_DEVICES_A", rails), at);
  const auto segment = engine.open_segment(told.name);
  if (!segment) die(std::string(segment.error().text()));
  // Many requests share memory, as all operations of perftest do.
  const auto begin = [&](std::size_t i) {
    const std::uint64_t offset = i * bytes % (kMemoryBytes / 2);
    const auto request =
        writes ? mc::transfer_put(at + offset, *segment, told.address + offset, bytes)
               : mc::transfer_get(at + offset, *segment, told.address + offset, bytes);
    auto batch = engine.submit({&request, 1});
    if (!batch) die(std::string(batch.error().text()));
    return std::move(*batch);
  };
  std::vector<mc::TransferBatch> batches;
  for (std::size_t i = 0; i < requests; ++i) batches.push_back(begin(i));
  const std::uint64_t first_ns = mc::now_ns() + kWarmUpNs;
  const std::uint64_t last_ns =
      first_ns + static_cast<std::uint64_t>(std::strtod(argv[5], nullptr) * 1e9);
  std::uint64_t done = 0;
  std::uint64_t direct_before = 0;
  for (std::size_t i = 0; mc::now_ns() < last_ns; i = (i + 1) % requests) {
    if (const mc::Status status = batches[i].wait(); !status.ok()) die(std::string(status.text()));
    batches[i] = begin(i);
    if (mc::now_ns() < first_ns) {
      direct_before = engine.info().value().direct_bytes;
      continue;
    }
    done += bytes;
  }
  if (engine.info().value().direct_bytes <= direct_before) die("the bytes went over TCP");
  std::printf("%.1f\n", static_cast<double>(done) / 1e6 / std::strtod(argv[5], nullptr));
  batches.clear();
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return 0;
}
