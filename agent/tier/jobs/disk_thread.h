// SPDX-License-Identifier: Apache-2.0
//
// A DiskWorker with a thread of its own, which does all work of a disk: system calls, copies and
//   checksums. The thread has a low priority among those that can run, so that gets of DRAM come first.
// Threads: one thread submits jobs and takes ends, see DiskJobs.
// Owns: the thread, the worker and the disk. The destructor waits for operations under way, and drops
//   jobs that have not ended.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "agent/tier/disk/disk.h"
#include "agent/tier/jobs/disk_jobs.h"
#include "agent/tier/jobs/disk_worker.h"
#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "mc/status.h"

namespace mc::tier {

class DiskThread : public DiskJobs {
 public:
  // Errors: MC_NO_MEMORY if the process gets no more threads or descriptors.
  static Result<std::unique_ptr<DiskThread>> start(std::unique_ptr<Disk> disk);
  ~DiskThread() override;
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  std::uint64_t disk_bytes() const override { return worker_.disk_bytes(); }
  void submit(Job job) override MC_EXCLUDES(mutex_);
  void take_ended(std::vector<JobEnd>& ended) override MC_EXCLUDES(mutex_);
  void give_up() override { worker_.give_up(); }
  // Readable while ends wait for take_ended().
  int wait_fd() const { return event_.get(); }

 private:
  DiskThread(std::unique_ptr<Disk> disk, Fd event);
  void run();
  bool take_submitted() MC_EXCLUDES(mutex_);
  void give_ended() MC_EXCLUDES(mutex_);
  bool may_sleep(std::uint64_t now_ns) MC_EXCLUDES(mutex_);

  DiskWorker worker_;  // of the thread, but for wake() and give_up()
  Fd event_;
  mutable Mutex mutex_;
  std::vector<Job> submitted_ MC_GUARDED_BY(mutex_);
  std::vector<JobEnd> ended_ MC_GUARDED_BY(mutex_);
  bool stop_ MC_GUARDED_BY(mutex_) = false;
  bool sleeps_ MC_GUARDED_BY(mutex_) = false;  // or is about to sleep
  std::thread thread_;
};

}  // namespace mc::tier
