// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/leader_finder.h"

#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kAskForNs = 500'000'000;

}  // namespace

LeaderFinder::LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition,
                           Found found, const StartStoreThread& start_thread)
    : store_(std::move(store)),
      partition_(partition),
      found_(std::move(found)),
      thread_(start_thread([this] { return step(); })) {}

void LeaderFinder::seek() {
  wanted_ = true;
  thread_->wake();
}

std::uint64_t LeaderFinder::step() {
  if (!wanted_.exchange(false)) return UINT64_MAX;
  auto leader = find_leader(*store_, now_ns() + kAskForNs, partition_);
  found_(leader ? Result<std::string>(std::move(leader->value)) : fail(leader.error()));
  return UINT64_MAX;
}

}  // namespace mc::metadata
