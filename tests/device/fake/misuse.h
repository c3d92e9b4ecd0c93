// SPDX-License-Identifier: Apache-2.0
//
// The end of a process that misuses the driver, and the checks at the start of each call.
#pragma once

#include <cstdint>
#include <string>

#include "device/fake/abi.h"

namespace mc::fake {

// Prints the call and the cause, and aborts.
[[noreturn]] void misuse(const char* call, const std::string& cause);

// Every exported function starts with an entry. Aborts in a child of fork() and in a host function.
class Entry {
 public:
  enum class Needs {
    kNothing,
    kDriver,   // cuInit() was called, and no error has poisoned the process
    kContext,  // and a context is current in this thread
  };
  explicit Entry(const char* call, Needs needs = Needs::kContext);
  // Not 0: the call returns this error.
  int error() const { return error_; }
  const char* call() const { return call_; }

 private:
  const char* const call_;
  int error_ = kSuccess;
};

// The state of the process that entries check.
void initialize();
// An error that each later call returns, until the process ends.
void poison(int error);
int poison_error();  // kSuccess: none
// Contexts are balanced in each thread.
bool push_context(int device);
int pop_context();
int current_device();  // -1: no context is current
// Marks a thread that runs a host function.
class InHostFunction {
 public:
  InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  ~InHostFunction();
};

void fail_calls(const char* prefix, int good, int error);
std::uint64_t count_calls(const char* prefix);

}  // namespace mc::fake
