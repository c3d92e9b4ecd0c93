// SPDX-License-Identifier: Apache-2.0
//
// A private stack for a simulated thread. The first entry uses makecontext; later switches use
//   _setjmp and _longjmp, which need no system call.
// Threads: one real thread; owner and fiber alternate.
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

  // REQUIRES: the fiber is new or finished.
  void start(std::function<void()> body);
  // Runs the body until the body calls pause() or ends.
  void resume();
  // REQUIRES: called from the body.
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
