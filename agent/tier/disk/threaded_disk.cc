// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/disk/threaded_disk.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "libmc/base/exception.h"

namespace mc::tier {

ThreadedDisk::ThreadedDisk(Fd fd, DiskShape shape) : fd_(std::move(fd)), shape_(shape) {}

Result<std::unique_ptr<ThreadedDisk>> ThreadedDisk::create(Fd fd, DiskShape shape) {
  std::unique_ptr<ThreadedDisk> disk(new ThreadedDisk(std::move(fd), shape));
  try {
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      disk->threads_.emplace_back([owner = disk.get()] { owner->work(); });
    }
  } catch (...) {
    const Caught caught = caught_exception();
    return fail(caught.code, caught.text);
  }
  return disk;
}

ThreadedDisk::~ThreadedDisk() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  submitted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadedDisk::submit(const BlockOperation& operation) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(operation);
  }
  submitted_.notify_one();
}

void ThreadedDisk::take_ended(std::vector<BlockEnd>& ended) {
  const MutexLock lock(mutex_);
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void ThreadedDisk::wait(std::uint64_t timeout_ns) {
  // The steady clock has signed nanoseconds.
  constexpr std::uint64_t kLongestNs = std::uint64_t{1} << 62;
  const MutexLock lock(mutex_);
  ended_or_woken_.wait_for(mutex_, std::chrono::nanoseconds(std::min(timeout_ns, kLongestNs)),
                           [&]() MC_REQUIRES(mutex_) { return woken_ || !ended_.empty(); });
  woken_ = false;
}

void ThreadedDisk::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  ended_or_woken_.notify_one();
}

void ThreadedDisk::work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stops_ && waiting_.empty()) submitted_.wait(mutex_);
    if (waiting_.empty()) return;
    const BlockOperation operation = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const int error = carry_out(operation);
    lock.lock();
    ended_.push_back({operation.cookie, error});
    ended_or_woken_.notify_one();
  }
}

// Returns 0 or the errno.
int ThreadedDisk::carry_out(const BlockOperation& operation) const {
  // Results in a row without progress, after which the operation ends with the error.
  constexpr std::uint32_t kMostRepeats = 1000;
  if (operation.kind == BlockOperation::Kind::kFlush) {
    // A flush is never repeated: after a failed one, the next succeeds without the bytes.
    return ::fdatasync(fd_.get()) == 0 ? 0 : errno;
  }
  std::uint64_t done_bytes = 0;
  for (std::uint32_t repeats = 0; done_bytes < operation.bytes;) {
    const iovec part{operation.memory + done_bytes, operation.bytes - done_bytes};
    const auto offset = static_cast<off_t>(operation.offset + done_bytes);
    const ssize_t result = operation.kind == BlockOperation::Kind::kRead
                               ? ::preadv(fd_.get(), &part, 1, offset)
                               : ::pwritev(fd_.get(), &part, 1, offset);
    if (result == 0) return EIO;  // the file has become shorter
    if (result > 0) {
      done_bytes += static_cast<std::uint64_t>(result);
      repeats = 0;
    } else if ((errno != EINTR && errno != EAGAIN) || ++repeats > kMostRepeats) {
      return errno;
    }
  }
  return 0;
}

}  // namespace mc::tier
