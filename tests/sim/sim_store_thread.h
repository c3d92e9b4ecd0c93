// SPDX-License-Identifier: Apache-2.0
//
// A thread of a simulated process that calls the cluster store. The simulator runs the steps. A step that meets a
//   silent server stands still while simulated time goes on; only such a step has a real thread. One thread
//   runs at a time: the real thread, or the simulator's.
// Threads: The simulator's. stand_still(): within a step.
// Owns: The real thread, if any. The destructor ends the step.
#pragma once

#include <functional>
#include <semaphore>
#include <thread>
#include <vector>

#include "metadata/store/store_thread.h"

namespace mc::sim {

class SimStoreThread final : public metadata::StoreThread {
 public:
  using All = std::vector<SimStoreThread*>;
  // all: names this object until its end, and outlives the object.
  SimStoreThread(Step step, All& all);
  ~SimStoreThread() override;

  void wake() override { woken_ = true; }
  // Begins the step if the step is due, or goes on with the step that stands still. silent: the server is silent
  // now, so a step may begin to stand still, or may go on standing still until the end of its call.
  void run(bool silent);
  // Stands still until the server is silent no more, or until then. False: the step must end now.
  static bool stand_still(std::uint64_t until_ns);

 private:
  void go_on();

  const Step step_;
  All& all_;
  std::uint64_t due_ns_ = 0;
  bool woken_ = false;
  bool ending_ = false;
  bool over_ = false;  // the step in the real thread
  std::uint64_t stands_until_ns_ = 0;
  std::uint64_t now_ns_ = 0;  // of the simulator, for the real thread
  std::binary_semaphore step_runs_{0}, step_stands_{0};
  std::thread thread_;
};

}  // namespace mc::sim
