// SPDX-License-Identifier: Apache-2.0
//
// A client that makes only local reads, in phases, for `hot_path`. With --step the
//   client runs the reads in a child process, a machine instruction at a time, and prints the
//   executed instructions.
// Threads: a single thread, beside the threads of libmc.
// Owns: the child and the put objects.
// Trusts: the agent.
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "mc/mc.h"

namespace {

constexpr std::size_t kKeys = 1000;
constexpr std::size_t kKeyBytes = 64;
constexpr std::size_t kObjectBytes = 4096;
constexpr unsigned kWatchdogSeconds = 120;
constexpr int kCannotStep = 77;

using Key = std::array<char, kKeyBytes>;

Key make_key(const char* kind, std::size_t number) {
  Key key{};
  std::snprintf(key.data(), key.size(), "%s-%zu", kind, number);
  return key;
}

class Reads {
 public:
  bool open(const char* agent) {
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    options.agent = agent;
    if (mc_open(&options, &client_) != MC_OK) return complain("mc_open");
    const std::vector<char> value(kObjectBytes, 'v');
    for (std::size_t i = 0; i < kKeys; ++i) {
      present_.push_back(make_key("present", i));
      absent_.push_back(make_key("absent", i));
      const mc_slice bytes{value.data(), value.size()};
      if (mc_put(client_, slice(present_[i]), bytes, nullptr) != MC_OK) return complain("mc_put");
    }
    return true;
  }
  void close() { mc_close(client_); }

  bool get(std::size_t i) {
    std::size_t length = 0;
    return mc_get(client_, slice(present_[i]), buffer_, sizeof buffer_, &length) == MC_OK &&
           length == kObjectBytes;
  }
  bool view(std::size_t i) {
    mc_view view;
    if (mc_get_view(client_, slice(present_[i]), &view) != MC_OK) return false;
    mc_view_release(&view);
    return true;
  }
  bool view_miss(std::size_t i) {
    mc_view view;
    return mc_get_view(client_, slice(absent_[i]), &view) == MC_NOT_FOUND;
  }
  bool exists(std::size_t i) { return mc_exists(client_, slice(present_[i])) == MC_OK; }

 private:
  static mc_slice slice(const Key& key) { return {key.data(), key.size()}; }
  static bool complain(const char* call) {
    std::fprintf(stderr, "hot_path_client: %s: %s\n", call, mc_last_error());
    return false;
  }

  mc_client* client_ = nullptr;
  std::vector<Key> present_;
  std::vector<Key> absent_;
  char buffer_[kObjectBytes];
};

struct Phase {
  const char* name;
  bool (Reads::*call)(std::size_t);
};
constexpr Phase kPhases[] = {{"get", &Reads::get},
                             {"view", &Reads::view},
                             {"miss", &Reads::view_miss},
                             {"exists", &Reads::exists}};

// Runs the phases, each between two marks. The first round has no marks: that round binds symbols
// and maps the memory that is mapped at first use.
template <typename Mark>
int run_phases(const char* agent, std::size_t calls, Mark mark) {
  static Reads reads;
  if (!reads.open(agent)) return 1;
  bool right = true;
  for (const Phase& phase : kPhases) {
    for (std::size_t i = 0; i < kKeys; ++i) right &= (reads.*phase.call)(i);
    mark();
    for (std::size_t i = 0; i < calls; ++i) right &= (reads.*phase.call)(i % kKeys);
    mark();
  }
  reads.close();
  if (!right) std::fprintf(stderr, "hot_path_client: a read gave something else than expected\n");
  return right ? 0 : 1;
}

void mark_for_strace() { ::syscall(SYS_getppid); }

#if defined(__x86_64__)

void mark_for_tracer() { asm volatile("int3"); }

enum class Kind { kOrdinary, kMark, kSyscall, kLocked, kFence };

// Recognises a few instructions by the first bytes (Intel SDM, volume 2, chapter 2).
Kind kind_of(const unsigned char* bytes, std::size_t size) {
  constexpr unsigned char kLegacyPrefixes[] = {0x66, 0x67, 0x2e, 0x36, 0x3e,
                                               0x26, 0x64, 0x65, 0xf2, 0xf3};
  bool locked = false;
  std::size_t at = 0;
  for (; at < size; ++at) {
    if (bytes[at] == 0xf0) {
      locked = true;
    } else if (std::memchr(kLegacyPrefixes, bytes[at], sizeof kLegacyPrefixes) == nullptr) {
      break;
    }
  }
  if (locked) return Kind::kLocked;
  if (at < size && (bytes[at] & 0xf0) == 0x40) ++at;  // REX
  if (at + 2 >= size) return Kind::kOrdinary;
  const unsigned opcode = bytes[at];
  const unsigned second = bytes[at + 1];
  if (opcode == 0xcc) return Kind::kMark;
  if (opcode == 0x0f && (second == 0x05 || second == 0x34)) return Kind::kSyscall;
  if (opcode == 0xcd && second == 0x80) return Kind::kSyscall;
  // An exchange with memory is locked even without a prefix.
  if ((opcode == 0x86 || opcode == 0x87) && second < 0xc0) return Kind::kLocked;
  const bool fence = opcode == 0x0f && second == 0xae && bytes[at + 2] >= 0xe8;
  return fence ? Kind::kFence : Kind::kOrdinary;
}

struct Executed {
  std::uint64_t instructions = 0;
  std::uint64_t syscalls = 0;
  std::uint64_t locked = 0;
  std::uint64_t fences = 0;
};

class Stepper {
 public:
  explicit Stepper(pid_t pid) : pid_(pid) {}

  // Steps from the current mark to the next mark. False: the child has ended.
  bool step_to_mark(Executed& executed) {
    for (;;) {
      user_regs_struct registers{};
      if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &registers) != 0) return false;
      switch (kind_at(registers.rip)) {
        case Kind::kMark:
          return resume(PTRACE_CONT);  // the child traps at the mark
        case Kind::kSyscall:
          ++executed.syscalls;
          break;
        case Kind::kLocked:
          ++executed.locked;
          break;
        case Kind::kFence:
          ++executed.fences;
          break;
        case Kind::kOrdinary:
          break;
      }
      ++executed.instructions;
      if (!resume(PTRACE_SINGLESTEP)) return false;
    }
  }
  bool run_to_mark() { return resume(PTRACE_CONT); }
  int exit_code() {
    int status = 0;
    ::ptrace(PTRACE_CONT, pid_, nullptr, nullptr);
    if (::waitpid(pid_, &status, 0) != pid_ || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
  }

 private:
  Kind kind_at(std::uint64_t address) {
    if (const auto known = kinds_.find(address); known != kinds_.end()) return known->second;
    unsigned char bytes[16];
    for (std::size_t i = 0; i < 2; ++i) {
      const long word = ::ptrace(PTRACE_PEEKTEXT, pid_, address + i * sizeof(long), nullptr);
      std::memcpy(bytes + i * sizeof word, &word, sizeof word);
    }
    return kinds_[address] = kind_of(bytes, sizeof bytes);
  }
  bool resume(__ptrace_request how) {
    int status = 0;
    if (::ptrace(how, pid_, nullptr, nullptr) != 0 || ::waitpid(pid_, &status, 0) != pid_) {
      return false;
    }
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
  }

  pid_t pid_;
  std::unordered_map<std::uint64_t, Kind> kinds_;
};

int step_phases(const char* agent, std::size_t calls) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kCannotStep);
    ::raise(SIGTRAP);  // from here on, the tracer is ready
    ::_exit(run_phases(agent, calls, mark_for_tracer));
  }
  ::alarm(kWatchdogSeconds);  // ends this process and the child
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    std::fprintf(stderr, "hot_path_client: this system lets no process trace its child\n");
    return kCannotStep;
  }
  Stepper stepper(pid);
  for (const Phase& phase : kPhases) {
    Executed executed;
    if (!stepper.run_to_mark() || !stepper.step_to_mark(executed)) {
      std::fprintf(stderr, "hot_path_client: the traced process ended in phase %s\n", phase.name);
      return 1;
    }
    std::printf(
        "{\"phase\":\"%s\",\"calls\":%zu,\"instructions\":%llu,\"syscalls\":%llu,"
        "\"locked\":%llu,\"fences\":%llu}\n",
        phase.name, calls, static_cast<unsigned long long>(executed.instructions),
        static_cast<unsigned long long>(executed.syscalls),
        static_cast<unsigned long long>(executed.locked),
        static_cast<unsigned long long>(executed.fences));
  }
  return stepper.exit_code();
}

#else

int step_phases(const char*, std::size_t) {
  std::fprintf(stderr, "hot_path_client: --step knows the instructions of x86-64 only\n");
  return kCannotStep;
}

#endif

constexpr const char* kUsage =
    "hot_path_client [--step] AGENT-SOCKET CALLS\n"
    "Puts 1,000 objects and reads them in phases of CALLS calls. Without --step each phase stands\n"
    "between two getppid() calls, for strace; with it, it runs one instruction at a time, and a\n"
    "JSON line a phase tells what was executed. Exit status: 0 done, 1 failed, 2 wrong usage,\n"
    "77 this system cannot step.\n";

}  // namespace

int main(int argc, char** argv) {
  const option flags[] = {{"step", no_argument, nullptr, 's'},
                          {"help", no_argument, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  bool step = false;
  for (int flag = 0; (flag = ::getopt_long(argc, argv, "h", flags, nullptr)) != -1;) {
    if (flag == 'h') return std::fputs(kUsage, stdout) < 0 ? 1 : 0;
    if (flag != 's') return std::fputs(kUsage, stderr), 2;
    step = true;
  }
  const long calls = optind + 2 == argc ? std::strtol(argv[optind + 1], nullptr, 10) : 0;
  if (calls < 1 || calls > 10'000'000) return std::fputs(kUsage, stderr), 2;
  const auto count = static_cast<std::size_t>(calls);
  return step ? step_phases(argv[optind], count) : run_phases(argv[optind], count, mark_for_strace);
}
