// SPDX-License-Identifier: Apache-2.0
//
// What it is: letting go of the interpreter's lock (the GIL) for the length of a wait or a copy,
// and
//   what becomes of threads that want it back while the interpreter ends.
// Threads: any that runs Python code. Owns: nothing.
//
// CPython ends a daemon thread that asks for the lock during finalization by unwinding it, which
// aborts the process as soon as it meets C++. So from the exit hook on such a thread sleeps for
// ever instead; the process is about to end anyway.
#pragma once

#include <Python.h>

namespace mckv {

// Copies up to this size are cheaper than a change of the lock's owner.
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

// True once the interpreter began to end: nothing may wait for the lock any more.
bool interpreter_ends();
// Called by atexit, in the main thread, with the lock. Returns when no thread of ours is about to
// take the lock (or after a second).
void on_interpreter_exit();

// How many forks led to this process.
unsigned fork_generation();

}  // namespace mckv
