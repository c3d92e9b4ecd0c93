// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/leader_finder.h"

#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kAskForNs = 500'000'000;

}  // namespace

LeaderFinder::LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition,
                           Found found)
    : store_(std::move(store)),
      partition_(partition),
      found_(std::move(found)),
      thread_([this] { run(); }) {}

LeaderFinder::~LeaderFinder() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LeaderFinder::seek() {
  {
    const MutexLock lock(mutex_);
    wanted_ = true;
  }
  wake_.notify_all();
}

void LeaderFinder::run() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      wake_.wait(mutex_, [this]() MC_REQUIRES(mutex_) { return wanted_ || stopping_; });
      if (stopping_) return;
      wanted_ = false;
    }
    auto leader = find_leader(*store_, now_ns() + kAskForNs, partition_);
    found_(leader ? Result<std::string>(std::move(leader->value)) : fail(leader.error()));
  }
}

}  // namespace mc::metadata
