// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/disk/uring_disk.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::tier {

namespace {

// The kernel adds the timeout to its clock in signed nanoseconds.
constexpr std::uint64_t kLongestWaitNs = std::uint64_t{1} << 62;
// An entry of the ring has 32 bits for a length. The kernel cuts an operation at 2 GiB minus a page.
constexpr std::uint64_t kMostBytesAtOnce = 1u << 30;
constexpr std::uint64_t kWakeCookie = ~std::uint64_t{0};

// Checks the result of a call into the ring. True: the kernel has no memory at the moment, or has
// ends that must be taken first. Other errors break a REQUIRES: another thread called (EEXIST), or
// the descriptor of the ring is gone. An operation's memory may then change for ever.
bool must_try_later(int result) {
  if (result >= 0 || result == -ETIME || result == -EINTR) return false;
  if (result != -EAGAIN && result != -EBUSY) std::abort();
  return true;
}

}  // namespace

UringDisk::UringDisk(DiskShape shape) : shape_(shape) {
  for (std::uint32_t index = kDepth; index > 0; --index) free_.push_back(index - 1);
}

Result<std::unique_ptr<UringDisk>> UringDisk::create(Fd& fd, DiskShape shape) {
  auto wakeup = make_eventfd();
  if (!wakeup) return fail(wakeup.error());
  std::unique_ptr<UringDisk> disk(new UringDisk(shape));
  disk->wakeup_ = std::move(*wakeup);
  if (Status status = disk->make_ring(); !status.ok()) return fail(status);
  disk->fd_ = std::move(fd);
  return disk;
}

Status UringDisk::make_ring() {
  // In the order of speed. Linux 6.1 has the first, 5.19 the second.
  constexpr std::array<unsigned, 3> kFlags = {
      IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_COOP_TASKRUN, 0};
  int result = -EINVAL;
  for (const unsigned flags : kFlags) {
    // One more entry than operations: the poll of the eventfd.
    result = ::io_uring_queue_init(kDepth + 1, &ring_, flags | IORING_SETUP_R_DISABLED);
    if (result != -EINVAL) break;
  }
  if (result == -ENOMEM || result == -EMFILE || result == -ENFILE) {
    return {MC_NO_MEMORY, errno_text("make an io_uring", -result)};
  }
  if (result < 0) {
    return {MC_UNSUPPORTED, errno_text("make an io_uring", -result) +
                                "; a container or the sysctl io_uring_disabled may forbid rings"};
  }
  has_ring_ = true;
  // Without EXT_ARG a wait with a timeout takes an entry of the ring; without NODROP ends get lost.
  constexpr unsigned kNeeded = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
  if ((ring_.features & kNeeded) != kNeeded) {
    return {MC_UNSUPPORTED, "the io_uring of this kernel is older than Linux 5.11"};
  }
  return {};
}

UringDisk::~UringDisk() {
  if (!has_ring_) return;
  while (free_.size() < kDepth) {
    ended_.clear();
    wait(kLongestWaitNs);
  }
  ::io_uring_queue_exit(&ring_);
}

void UringDisk::begin() {
  if (enabled_) return;
  enabled_ = true;
  if (::io_uring_enable_rings(&ring_) < 0) std::abort();
  fill_wake();
}

void UringDisk::submit(const BlockOperation& operation) {
  begin();
  if (free_.empty()) std::abort();  // breaks a REQUIRES: the operation would be lost
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slots_[index] = {operation, 0, 0};
  fill(index);
}

// There is always a free entry: each operation has at most one, and so has the poll.
void UringDisk::fill(std::uint32_t index) {
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
  const Slot& slot = slots_[index];
  const BlockOperation& operation = slot.operation;
  const std::uint64_t offset = operation.offset + slot.done_bytes;
  std::byte* const memory = operation.memory + slot.done_bytes;
  const auto bytes =
      static_cast<unsigned>(std::min(operation.bytes - slot.done_bytes, kMostBytesAtOnce));
  switch (operation.kind) {
    case BlockOperation::Kind::kRead:
      ::io_uring_prep_read(entry, fd_.get(), memory, bytes, offset);
      break;
    case BlockOperation::Kind::kWrite:
      ::io_uring_prep_write(entry, fd_.get(), memory, bytes, offset);
      break;
    case BlockOperation::Kind::kFlush:
      ::io_uring_prep_fsync(entry, fd_.get(), IORING_FSYNC_DATASYNC);
      break;
  }
  ::io_uring_sqe_set_data64(entry, index);
}

// A poll and not a read: the eventfd is non-blocking, so that a read would end at once with EAGAIN.
void UringDisk::fill_wake() {
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
  ::io_uring_prep_poll_add(entry, wakeup_.get(), POLLIN);
  ::io_uring_sqe_set_data64(entry, kWakeCookie);
}

// Submits the filled entries. The call also lets the kernel post ends that it holds back.
void UringDisk::enter() {
  int result = 0;
  do {
    result = ::io_uring_submit_and_get_events(&ring_);
    // The next take_ended() or wait() submits the rest.
    if (must_try_later(result)) return;
  } while (result > 0 && ::io_uring_sq_ready(&ring_) > 0);
}

void UringDisk::enter_and_wait(std::uint64_t timeout_ns) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  __kernel_timespec timeout{};
  timeout.tv_sec = static_cast<std::int64_t>(timeout_ns / kSecondNs);
  timeout.tv_nsec = static_cast<std::int64_t>(timeout_ns % kSecondNs);
  io_uring_cqe* first = nullptr;
  const int result =
      ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, /*sigmask=*/nullptr);
  // Otherwise the loop of wait() would spin until the kernel has memory again.
  if (must_try_later(result)) ::poll(nullptr, 0, 1);
}

void UringDisk::reap() {
  io_uring_cqe* at = nullptr;
  unsigned head = 0;
  unsigned count = 0;
  io_uring_for_each_cqe(&ring_, head, at) {
    ++count;
    if (at->user_data != kWakeCookie) {
      on_result(static_cast<std::uint32_t>(at->user_data), at->res);
      continue;
    }
    // The counter is zero before the next poll begins, so that no wake() is lost.
    drain_eventfd(wakeup_.get());
    woken_ = true;
    fill_wake();
  }
  ::io_uring_cq_advance(&ring_, count);
}

void UringDisk::on_result(std::uint32_t index, int result) {
  Slot& slot = slots_[index];
  // A flush is never repeated: after a failed one, the next succeeds without the bytes.
  if (slot.operation.kind == BlockOperation::Kind::kFlush) return end(index, -result);
  if (result == -EINTR || result == -EAGAIN) {
    if (++slot.repeats > kMostRepeats) return end(index, -result);
    return fill(index);
  }
  if (result < 0) return end(index, -result);
  if (result == 0) return end(index, EIO);  // the file has become shorter
  slot.done_bytes += static_cast<std::uint64_t>(result);
  slot.repeats = 0;
  if (slot.done_bytes >= slot.operation.bytes) return end(index, 0);
  fill(index);
}

void UringDisk::end(std::uint32_t index, int error) {
  ended_.push_back({slots_[index].operation.cookie, error});
  free_.push_back(index);
}

void UringDisk::take_ended(std::vector<BlockEnd>& ended) {
  begin();
  // After a wait() the ends are here already, without another call into the kernel.
  if (::io_uring_sq_ready(&ring_) > 0 || (ended_.empty() && free_.size() < kDepth)) enter();
  reap();
  if (::io_uring_sq_ready(&ring_) > 0) enter();
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void UringDisk::wait(std::uint64_t timeout_ns) {
  begin();
  timeout_ns = std::min(timeout_ns, kLongestWaitNs);
  const std::uint64_t begin_ns = now_ns();
  // A signal ends the kernel's wait early.
  for (std::uint64_t waited_ns = 0; ended_.empty() && !woken_ && waited_ns < timeout_ns;
       waited_ns = now_ns() - begin_ns) {
    enter_and_wait(timeout_ns - waited_ns);
    reap();
  }
  woken_ = false;
  if (::io_uring_sq_ready(&ring_) > 0) enter();
}

void UringDisk::wake() { signal_eventfd(wakeup_.get()); }

}  // namespace mc::tier
