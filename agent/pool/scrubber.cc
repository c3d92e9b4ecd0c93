// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/scrubber.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <bit>

#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kStepBytes = 1u << 20;  // between two checks of the version and of stop_
// 32 MiB a second, in bursts of 8 MiB: a quarter of a percent of a core. A walk over 1 TiB takes nine
// hours.
constexpr std::uint64_t kBurstBytes = 8u << 20;
constexpr std::uint64_t kBurstNs = 250'000'000;
constexpr std::uint64_t kShortestWalkNs = 1'000'000'000;
constexpr std::uint64_t kEntryBytes = sizeof(shm::Entry);
constexpr std::size_t kMostAsked = 256;
constexpr std::size_t kMostFindings = 64;  // the agent's loop removes these in one turn

}  // namespace

Scrubber::Scrubber(ObjectStore& store, int event)
    : header_(store.index().header()),
      entries_(&store.index().entry(0)),
      keys_(reinterpret_cast<const std::byte*>(&header_) + header_.keys_offset),
      pool_(store.pool().data()),
      pool_bytes_(store.pool().file().size_bytes()),
      event_(event),
      thread_([this] { run(); }) {}

Scrubber::~Scrubber() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // A thread that uses only idle time would keep the loop waiting on a busy machine.
  const sched_param parameter{};
  ::pthread_setschedparam(thread_.native_handle(), SCHED_OTHER, &parameter);
  thread_.join();
}

void Scrubber::examine(std::uint32_t entry) {
  {
    const MutexLock lock(mutex_);
    if (asked_.size() >= kMostAsked) return;
    asked_.push_back(entry);
  }
  changed_.notify_all();
}

std::vector<Scrubber::Finding> Scrubber::take() {
  const MutexLock lock(mutex_);
  return std::exchange(findings_, {});
}

void Scrubber::run() {
  // The scrubber must use only idle processor time.
  const sched_param parameter{};
  ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &parameter);
  while (!stop_) {
    const std::uint64_t end_ns = now_ns() + kShortestWalkNs;
    const std::uint64_t count = header_.entry_count.load_acquire();
    for (std::uint64_t id = 0; id < count && !stop_; ++id) {
      check(static_cast<std::uint32_t>(id));
      spend(kEntryBytes);
      check_asked();
    }
    for (std::uint64_t now = now_ns(); now < end_ns && !stop_; now = now_ns()) {
      wait_for_question(end_ns - now);
      check_asked();
    }
  }
}

void Scrubber::spend(std::uint64_t bytes) {
  read_bytes_ += bytes;
  if (read_bytes_ < kBurstBytes) return;
  read_bytes_ = 0;
  const MutexLock lock(mutex_);
  changed_.wait_for(mutex_, std::chrono::nanoseconds(kBurstNs), [&] { return stop_.load(); });
}

void Scrubber::wait_for_question(std::uint64_t ns) {
  const MutexLock lock(mutex_);
  changed_.wait_for(mutex_, std::chrono::nanoseconds(ns),
                    [&]() MC_REQUIRES(mutex_) { return stop_ || !asked_.empty(); });
}

void Scrubber::check_asked() {
  std::vector<std::uint32_t> asked;
  {
    const MutexLock lock(mutex_);
    asked.swap(asked_);
  }
  const std::uint64_t count = header_.entry_count.load_acquire();
  for (const std::uint32_t id : asked) {
    if (id < count && !stop_) check(id);
  }
}

void Scrubber::check(std::uint32_t id) {
  const shm::Entry& entry = entries_[id];
  const std::uint64_t version = entry.version.load_acquire();
  if (shm::state_of(version) != shm::EntryState::kLive) return;
  const auto field = std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
  const std::uint64_t extent = entry.extent.load_relaxed();
  std::uint64_t left = entry.length.load_relaxed();
  std::uint64_t sum = entry.hash.load_relaxed();
  const std::uint64_t expected = entry.checksum.load_relaxed();
  // The entry may have been reused during the reads. The words belong to the same object only if
  // the version is unchanged.
  shm::acquire_fence();
  if (entry.version.load_relaxed() != version) return;
  shm::ExtentRecord records[MC_MAX_EXTENTS] = {{extent, left}};
  const std::size_t count = std::min<std::size_t>(field.extent_count, MC_MAX_EXTENTS);
  // A damaged entry must not lead the scrubber beyond the reserved memory.
  if (count > 1) {
    const std::uint64_t units = header_.keys_reserved_bytes.load_relaxed() / shm::kRecordUnitBytes;
    if (extent > units || count * sizeof *records > (units - extent) * shm::kRecordUnitBytes)
      return;
    const auto* list = keys_ + extent * shm::kRecordUnitBytes;
    std::copy_n(reinterpret_cast<const shm::ExtentRecord*>(list), count, records);
  }
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    std::uint64_t at = records[i].offset_bytes;
    std::uint64_t part = std::min(left, records[i].length_bytes);
    if (part > shm::reserved_bytes_at(header_, pool_bytes_, at)) return;
    left -= part;
    while (part > 0) {
      const std::uint64_t step = std::min(part, kStepBytes);
      sum = checksum(sum, pool_ + at, step);
      at += step;
      part -= step;
      spend(step);
      if (stop_ || entry.version.load_acquire() != version) return;
    }
  }
  shm::acquire_fence();
  if (entry.version.load_relaxed() != version) return;
  if (sum != expected) {
    {
      const MutexLock lock(mutex_);
      // The next walk finds the others.
      if (findings_.size() < kMostFindings) findings_.push_back({id, version});
    }
    signal_eventfd(event_);
  }
  ++verified_;
}

}  // namespace mc::agent
