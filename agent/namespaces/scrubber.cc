// SPDX-License-Identifier: Apache-2.0
#include "agent/namespaces/scrubber.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <bit>

#include "libmc/base/checksum.h"

namespace mc::agent {

namespace {
constexpr std::uint64_t kStepBytes = 1u << 20;  // between two checks of the version and of stop_
}

Scrubber::Scrubber(ObjectStore& store, int event)
    : header_(store.index().header()),
      entries_(&store.index().entry(0)),
      keys_(reinterpret_cast<const std::byte*>(&header_) + header_.keys_offset),
      pool_(store.pool().data()),
      pool_bytes_(store.pool().file().size_bytes()),
      event_(event),
      thread_([this, count = store.index().entry_count()] { run(count); }) {}

Scrubber::~Scrubber() {
  stop_ = true;
  thread_.join();
}

std::vector<Scrubber::Finding> Scrubber::take() {
  MutexLock lock(mutex_);
  return std::exchange(findings_, {});
}

void Scrubber::run(std::uint64_t entry_count) {
  // The scrubber must use only idle processor time.
  const sched_param parameter{};
  ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &parameter);
  for (std::uint64_t id = 0; id < entry_count && !stop_; ++id)
    check(static_cast<std::uint32_t>(id));
  done_ = true;
  signal_eventfd(event_);
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
  if (count > 1) {
    const auto* list = keys_ + extent * shm::kRecordUnitBytes;
    std::copy_n(reinterpret_cast<const shm::ExtentRecord*>(list), count, records);
  }
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    std::uint64_t at = records[i].offset_bytes;
    std::uint64_t part = std::min(left, records[i].length_bytes);
    if (at > pool_bytes_ || part > pool_bytes_ - at) return;
    left -= part;
    while (part > 0) {
      const std::uint64_t step = std::min(part, kStepBytes);
      sum = checksum(sum, pool_ + at, step);
      at += step;
      part -= step;
      if (stop_ || entry.version.load_acquire() != version) return;
    }
  }
  shm::acquire_fence();
  if (entry.version.load_relaxed() != version) return;
  ++verified_;
  if (sum == expected) return;
  {
    MutexLock lock(mutex_);
    findings_.push_back({id, version});
  }
  signal_eventfd(event_);
}

}  // namespace mc::agent
