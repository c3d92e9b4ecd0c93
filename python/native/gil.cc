// SPDX-License-Identifier: Apache-2.0
#include "gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

namespace mckv {

namespace {

std::atomic<bool> ending{false};
std::atomic<int> coming_back{0};  // threads between the check of `ending` and the lock
pthread_t main_thread;

std::atomic<unsigned> forks{0};
const bool counting_forks = [] {
  return pthread_atfork(nullptr, nullptr, [] {
           forks.fetch_add(1, std::memory_order_relaxed);
           coming_back.store(0);  // the threads exist only in the parent
         }) == 0;
}();

}  // namespace

GilReleased::~GilReleased() {
  coming_back.fetch_add(1);
  if (ending.load() && pthread_equal(pthread_self(), main_thread) == 0) {
    coming_back.fetch_sub(1);
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  coming_back.fetch_sub(1);
}

bool interpreter_ends() { return ending.load(); }

void on_interpreter_exit() {
  main_thread = pthread_self();
  ending.store(true);
  PyThreadState* state = PyEval_SaveThread();
  const timespec pause_for{0, 1000000};
  for (int i = 0; i < 1000 && coming_back.load() > 0; ++i) nanosleep(&pause_for, nullptr);
  PyEval_RestoreThread(state);
}

unsigned fork_generation() { return counting_forks ? forks.load(std::memory_order_relaxed) : 0; }

}  // namespace mckv
