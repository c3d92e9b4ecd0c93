// SPDX-License-Identifier: Apache-2.0
//
// A disk over io_uring: one ring, one batch of submissions for each take_ended() or wait().
//   The ring is made disabled. The first call of submit(), take_ended() or wait() enables the ring.
//   With IORING_SETUP_SINGLE_ISSUER the kernel binds a ring to the thread that enables the ring. An
//   enabled ring would belong to the thread that opens the disk, and a ring made in the first call
//   could fail too late for ThreadedDisk to take over.
//   submit() only fills an entry. take_ended() and wait() hand the entries to the kernel, which can
//   block there while the device has no free request. The thread should have no other duties.
// Threads: as Disk. If operations are under way, the thread that submits also destroys the disk:
//   the kernel gives the ends of those operations to no other thread.
// Owns: the descriptor, the ring and an eventfd.
// Trusts: the kernel.
#pragma once

#include <liburing.h>

#include <array>
#include <memory>
#include <vector>

#include "agent/tier/disk/disk.h"
#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::tier {

class UringDisk : public Disk {
 public:
  static constexpr std::uint32_t kDepth = 64;

  // Takes the descriptor, but leaves it with the caller after an error.
  // Errors: MC_UNSUPPORTED if the kernel has no io_uring, forbids it, or is older than 5.11;
  // MC_NO_MEMORY.
  static Result<std::unique_ptr<UringDisk>> create(Fd& fd, DiskShape shape);
  UringDisk(const UringDisk&) = delete;
  UringDisk& operator=(const UringDisk&) = delete;
  // Waits for the operations under way.
  ~UringDisk() override;

  DiskShape shape() const override { return shape_; }
  std::uint32_t depth() const override { return kDepth; }
  void submit(const BlockOperation& operation) override;
  void take_ended(std::vector<BlockEnd>& ended) override;
  void wait(std::uint64_t timeout_ns) override;
  void wake() override;

 private:
  // Results in a row without progress (EINTR, EAGAIN), after which an operation ends with the error.
  static constexpr std::uint32_t kMostRepeats = 1000;
  struct Slot {
    BlockOperation operation;
    std::uint64_t done_bytes = 0;
    std::uint32_t repeats = 0;
  };

  explicit UringDisk(DiskShape shape);
  Status make_ring();
  void begin();
  void fill(std::uint32_t index);
  void fill_wake();
  void enter();
  void enter_and_wait(std::uint64_t timeout_ns);
  void reap();
  void on_result(std::uint32_t index, int result);
  void end(std::uint32_t index, int error);

  const DiskShape shape_;
  Fd fd_;
  Fd wakeup_;
  io_uring ring_{};
  bool has_ring_ = false;
  bool enabled_ = false;
  bool woken_ = false;
  std::array<Slot, kDepth> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<BlockEnd> ended_;
};

}  // namespace mc::tier
