// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_store_thread.h"

#include "libmc/base/clock.h"
#include "sim/sim_clock.h"

namespace mc::sim {

namespace {

// Of the real thread of a step.
thread_local SimStoreThread* this_thread = nullptr;
thread_local Clock* this_clock = nullptr;

}  // namespace

SimStoreThread::SimStoreThread(Step step, All& all) : step_(std::move(step)), all_(all) {
  all_.push_back(this);
}

SimStoreThread::~SimStoreThread() {
  ending_ = true;
  if (thread_.joinable()) go_on();
  std::erase(all_, this);
}

void SimStoreThread::run(bool silent) {
  if (thread_.joinable()) {
    if (!silent || mc::now_ns() >= stands_until_ns_) go_on();
    return;
  }
  if (!woken_ && mc::now_ns() < due_ns_) return;
  woken_ = false;
  if (!silent) {
    due_ns_ = step_();
    return;
  }
  over_ = false;
  thread_ = std::thread([this] {
    step_runs_.acquire();
    Clock clock;
    clock.set(now_ns_);
    this_thread = this;
    this_clock = &clock;
    due_ns_ = step_();
    over_ = true;
    step_stands_.release();
  });
  go_on();
}

void SimStoreThread::go_on() {
  now_ns_ = mc::now_ns();
  step_runs_.release();
  step_stands_.acquire();
  if (over_) thread_.join();
}

bool SimStoreThread::stand_still(std::uint64_t until_ns) {
  SimStoreThread* const self = this_thread;
  if (self == nullptr || self->ending_) return false;
  self->stands_until_ns_ = until_ns;
  self->step_stands_.release();
  self->step_runs_.acquire();
  this_clock->set(self->now_ns_);
  return !self->ending_;
}

}  // namespace mc::sim
