// SPDX-License-Identifier: Apache-2.0
#include "device/fake/misuse.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace mc::fake {

namespace {

// Static storage: LeakSanitizer of LLVM 14 misreads the address of a loaded library's dynamic storage.
#define MC_FAKE_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) thread_local

constexpr int kMaxDepth = 8;
MC_FAKE_THREAD_LOCAL int contexts[kMaxDepth];
MC_FAKE_THREAD_LOCAL int depth = 0;
MC_FAKE_THREAD_LOCAL bool in_host_function = false;

std::atomic<int> initialized_by{0};  // the process
std::atomic<int> poisoned{kSuccess};

struct Demand {
  std::string prefix;
  int good = 0;
  int error = kSuccess;
};

std::mutex counts_mutex;
std::map<std::string, std::uint64_t, std::less<>> counts;
Demand demand;

int count(const char* call) {
  const std::lock_guard lock(counts_mutex);
  ++counts[call];
  if (demand.error == kSuccess || !std::string_view(call).starts_with(demand.prefix)) {
    return kSuccess;
  }
  if (demand.good == 0) return demand.error;
  --demand.good;
  return kSuccess;
}

}  // namespace

void misuse(const char* call, const std::string& cause) {
  std::fprintf(stderr, "fake driver: %s: %s\n", call, cause.c_str());
  std::abort();
}

Entry::Entry(const char* call, Needs needs) : call_(call) {
  const int owner = initialized_by.load();
  if (owner != 0 && owner != ::getpid()) {
    misuse(call, "a child of fork() cannot use its parent's driver");
  }
  if (in_host_function) misuse(call, "a host function must not call the driver");
  error_ = count(call);
  if (needs == Needs::kNothing) return;
  if (const int error = poisoned.load(); error != kSuccess) error_ = error;
  if (needs == Needs::kContext && depth == 0) error_ = kInvalidContext;
  if (owner == 0) error_ = kNotInitialized;
}

void initialize() {
  int none = 0;
  initialized_by.compare_exchange_strong(none, ::getpid());
}

void poison(int error) {
  int none = kSuccess;
  poisoned.compare_exchange_strong(none, error);
}

int poison_error() { return poisoned.load(); }

bool push_context(int device) {
  if (depth == kMaxDepth) return false;
  contexts[depth++] = device;
  return true;
}

int pop_context() { return depth == 0 ? -1 : contexts[--depth]; }

int current_device() { return depth == 0 ? -1 : contexts[depth - 1]; }

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

void fail_calls(const char* prefix, int good, int error) {
  const std::lock_guard lock(counts_mutex);
  demand = prefix == nullptr ? Demand{} : Demand{prefix, good, error};
}

std::uint64_t count_calls(const char* prefix) {
  const std::lock_guard lock(counts_mutex);
  std::uint64_t sum = 0;
  for (auto at = counts.lower_bound(prefix); at != counts.end() && at->first.starts_with(prefix);
       ++at) {
    sum += at->second;
  }
  return sum;
}

}  // namespace mc::fake
