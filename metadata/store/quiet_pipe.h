// SPDX-License-Identifier: Apache-2.0
//
// A scope in which a write to a closed connection raises no SIGPIPE in this thread.
//   OpenSSL writes without MSG_NOSIGNAL, and the host program may not ignore the signal.
// Threads: the scope's own thread.
#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace mc::metadata {

class QuietPipe {
 public:
  QuietPipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~QuietPipe() {
    const timespec at_once{};
    if (!was_pending_) {
      while (sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) continue;
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  QuietPipe(const QuietPipe&) = delete;
  QuietPipe& operator=(const QuietPipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

}  // namespace mc::metadata
