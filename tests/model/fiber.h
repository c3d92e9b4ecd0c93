// SPDX-License-Identifier: Apache-2.0
//
// What it is: a stack of its own for a simulated thread. The first entry goes by makecontext, every
//   later switch by _setjmp and _longjmp, which cost no system call.
// Threads: one real one; owner and fiber take turns.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>

namespace mc::model {

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // REQUIRES: not started, or finished.
  void start(std::function<void()> body);
  // Runs the body until it calls pause() or ends.
  void resume();
  // From within the body.
  void pause();
  bool finished() const { return finished_; }

 private:
  static void enter(unsigned high, unsigned low);
  void run();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  std::jmp_buf inside_;
  std::jmp_buf outside_;
  bool entered_ = false;
  bool finished_ = true;
};

}  // namespace mc::model
