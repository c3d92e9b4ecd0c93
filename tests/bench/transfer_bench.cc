// SPDX-License-Identifier: Apache-2.0
//
// The transfer engine between two processes beside the limits of this machine, measured in the same
// run: memcpy of the same sizes from and to equally large working sets, and iperf3's streams.
//
//   transfer_bench [--seconds N] [--congestion-control NAME]     (default: reno)
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/iperf3.h"
#include "libmc/base/clock.h"
#include "mc/transfer.h"

namespace {

constexpr std::uint64_t kSetBytes = 256u << 20;
constexpr std::uint64_t kSmallSetBytes = 4'096'000;  // 1,000 blocks of 4 KiB
constexpr int kTurns = 40;

double g_seconds = 1.0;
std::string g_congestion_control = "reno";

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "transfer_bench: %s: %s\n", what, mc_transfer_last_error());
  std::exit(1);
}

char* private_memory() {
  void* at = ::mmap(nullptr, kSetBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) die("mmap");
  std::memset(at, 3, kSetBytes);
  return static_cast<char*>(at);
}

char* shared_memory() {
  void* at = nullptr;
  if (mc_transfer_allocate(kSetBytes, &at) != MC_OK) die("allocate");
  std::memset(at, 3, kSetBytes);
  return static_cast<char*>(at);
}

mc_transfer_engine* open_engine(bool same_host) {
  mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
  options.same_host = same_host ? 0 : 1;
  options.timeout_ns = 60'000'000'000;
  options.congestion_control = g_congestion_control.c_str();
  mc_transfer_engine* engine = nullptr;
  if (mc_transfer_open(&options, &engine) != MC_OK) die("open");
  return engine;
}

struct Told {
  char name[64];
  std::uint64_t plain;
  std::uint64_t mapped;  // address from mc_transfer_allocate()
};

[[noreturn]] void serve(int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  mc_transfer_engine* const engine = open_engine(true);
  char* const plain = private_memory();
  char* const mapped = shared_memory();
  const mc_transfer_range ranges[] = {{plain, kSetBytes}, {mapped, kSetBytes}};
  if (mc_transfer_register(engine, ranges, 2, 3) != MC_OK) die("register");
  mc_transfer_info info{};
  info.struct_size = sizeof info;
  if (mc_transfer_get_info(engine, &info) != MC_OK) die("info");
  Told told{};
  std::snprintf(told.name, sizeof told.name, "%s", info.name);
  told.plain = reinterpret_cast<std::uint64_t>(plain);
  told.mapped = reinterpret_cast<std::uint64_t>(mapped);
  if (::write(out, &told, sizeof told) != sizeof told) die("write");
  for (;;) ::pause();
}

class Bench {
 public:
  Bench(const char* name, std::uint64_t remote, bool same_host, char* local)
      : engine_(open_engine(same_host)), remote_(remote), local_(local) {
    if (mc_transfer_open_segment(engine_, name, 0, &segment_) != MC_OK) die("open_segment");
    const mc_transfer_range range{local_, kSetBytes};
    if (mc_transfer_register(engine_, &range, 1, MC_TRANSFER_READ) != MC_OK) die("register");
  }
  ~Bench() { mc_transfer_close(engine_); }

  // Nanoseconds of this number of transfers, with a wait for each.
  double some(mc_transfer_verb verb, std::uint64_t size, int count) {
    const std::uint64_t set = size <= 4096 ? kSmallSetBytes : kSetBytes;
    const std::uint64_t start_ns = mc::now_ns();
    for (int i = 0; i < count; ++i) {
      if (at_ + size > set) at_ = 0;
      const mc_transfer_request request{verb, 0, local_ + at_, segment_, remote_ + at_, size};
      if (mc_transfer_run(engine_, &request, 1, nullptr) != MC_OK) die("run");
      at_ += size;
    }
    return static_cast<double>(mc::now_ns() - start_ns);
  }

 private:
  mc_transfer_engine* const engine_;
  const std::uint64_t remote_;
  char* const local_;
  mc_transfer_segment segment_ = 0;
  std::uint64_t at_ = 0;
};

double memcpy_some(char* to, const char* from, std::uint64_t size, int count) {
  static std::uint64_t at = 0;
  const std::uint64_t set = size <= 4096 ? kSmallSetBytes : kSetBytes;
  const std::uint64_t start_ns = mc::now_ns();
  for (int i = 0; i < count; ++i) {
    if (at + size > set) at = 0;
    std::memcpy(to + at, from + at, size);
    asm volatile("" ::: "memory");
    at += size;
  }
  return static_cast<double>(mc::now_ns() - start_ns);
}

// The median turn of each. The turns alternate, so that other programs disturb both equally.
struct Pair {
  double ours_ns;
  double limit_ns;
};
Pair measure(Bench& bench, mc_transfer_verb verb, std::uint64_t size, char* to, const char* from) {
  const int count = static_cast<int>(std::clamp<std::uint64_t>((8u << 20) / size, 1, 100));
  std::vector<double> ours;
  std::vector<double> limit;
  const std::uint64_t end_ns = mc::now_ns() + static_cast<std::uint64_t>(g_seconds * 1e9);
  for (int turn = 0; turn < kTurns || mc::now_ns() < end_ns; ++turn) {
    ours.push_back(bench.some(verb, size, count) / count);
    limit.push_back(memcpy_some(to, from, size, count) / count);
  }
  std::ranges::sort(ours);
  std::ranges::sort(limit);
  return {ours[ours.size() / 2], limit[limit.size() / 2]};
}

void say(const char* way, const char* verb, std::uint64_t size, const Pair& pair, double stream) {
  const double gb = static_cast<double>(size) / pair.ours_ns;
  std::printf("%-9s %-5s %9llu B  %10.1f us %6.2f GB/s   memcpy %8.1f us, ratio %.2f", way, verb,
              static_cast<unsigned long long>(size), pair.ours_ns / 1000, gb, pair.limit_ns / 1000,
              pair.limit_ns / pair.ours_ns);
  if (stream > 0) std::printf("   iperf3 %.2f GB/s, ratio %.2f", stream, gb / stream);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--seconds") g_seconds = std::strtod(argv[i + 1], nullptr);
    if (flag == "--congestion-control") g_congestion_control = argv[i + 1];
  }
  int ends[2];
  if (::pipe(ends) != 0) die("pipe");
  const int pid = ::fork();
  if (pid == 0) serve(ends[1]);
  Told told{};
  if (::read(ends[0], &told, sizeof told) != sizeof told) die("the other process did not start");
  char* const local = private_memory();
  // Separate memory for memcpy: memory that the engine has just used would be in the cache.
  char* const from = private_memory();
  char* const to = private_memory();
  struct Way {
    const char* name;
    std::uint64_t remote;
    bool same_host;
  };
  for (const Way& way : {Way{"same host, mapped", told.mapped, true},
                         Way{"same host", told.plain, true}, Way{"tcp", told.plain, false}}) {
    Bench bench(told.name, way.remote, way.same_host, local);
    for (const std::uint64_t size : {4096ull, 65536ull, 1ull << 20, 64ull << 20}) {
      double stream = 0;
      if (!way.same_host && size >= 1 << 20) {
        stream = mc::bench::iperf3_gb_per_s(1, g_seconds, g_congestion_control);
      }
      for (const auto verb : {MC_TRANSFER_PUT, MC_TRANSFER_GET}) {
        const Pair pair = measure(bench, verb, size, to, from);
        say(way.name, verb == MC_TRANSFER_PUT ? "write" : "read", size, pair, stream);
      }
    }
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return 0;
}
