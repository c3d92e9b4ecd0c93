// SPDX-License-Identifier: Apache-2.0
//
// A disk over threads that read, write and flush with the calls that block. For hosts that forbid
//   io_uring, as the default profiles of container engines do.
// Threads: as Disk. Eight threads of this object carry out the operations. Any thread may destroy
//   the disk.
// Owns: the descriptor and the threads.
// Trusts: the kernel.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "agent/tier/disk/disk.h"
#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "mc/status.h"

namespace mc::tier {

class ThreadedDisk : public Disk {
 public:
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::uint32_t kThreads = 8;

  // Errors: MC_NO_MEMORY if the process gets no more threads.
  static Result<std::unique_ptr<ThreadedDisk>> create(Fd fd, DiskShape shape);
  // Waits for the operations under way.
  ~ThreadedDisk() override;

  DiskShape shape() const override { return shape_; }
  std::uint32_t depth() const override { return kDepth; }
  void submit(const BlockOperation& operation) override MC_EXCLUDES(mutex_);
  void take_ended(std::vector<BlockEnd>& ended) override MC_EXCLUDES(mutex_);
  void wait(std::uint64_t timeout_ns) override MC_EXCLUDES(mutex_);
  void wake() override MC_EXCLUDES(mutex_);

 private:
  ThreadedDisk(Fd fd, DiskShape shape);
  void work() MC_EXCLUDES(mutex_);
  int carry_out(const BlockOperation& operation) const;

  const Fd fd_;
  const DiskShape shape_;
  Mutex mutex_;
  Condition submitted_;
  Condition ended_or_woken_;
  std::deque<BlockOperation> waiting_ MC_GUARDED_BY(mutex_);
  std::vector<BlockEnd> ended_ MC_GUARDED_BY(mutex_);
  bool woken_ MC_GUARDED_BY(mutex_) = false;
  bool stops_ MC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace mc::tier
