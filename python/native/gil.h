// SPDX-License-Identifier: Apache-2.0
//
// Releases the interpreter's lock (GIL) during a wait or a copy, and handles threads that need the
//   lock again while the interpreter ends.
// Threads: any thread that runs Python code. Owns: nothing.
//
// During finalization CPython unwinds a daemon thread that requests the lock. The unwinding aborts
// the process when it reaches a C++ frame. After the exit hook has run, the thread therefore sleeps
// until the process ends.
#pragma once

#include <Python.h>

namespace mckv {

// A copy up to this size costs less than a release of the lock.
inline constexpr std::size_t kCopyWithLockBytes = 8192;

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// True after the interpreter began to end: no thread may wait for the lock.
bool interpreter_ends();
// atexit calls this function in the main thread, with the lock. Returns when no thread of this
// module is about to take the lock, or after 1 s.
void on_interpreter_exit();

// Number of forks between the first process and this process.
unsigned fork_generation();

}  // namespace mckv
