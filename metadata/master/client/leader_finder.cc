// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/leader_finder.h"

#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kAskForNs = 500'000'000;

}  // namespace

LeaderFinder::LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition,
                           Found found, StoreCalls calls)
    : store_(std::move(store)), partition_(partition), found_(std::move(found)) {
  if (calls == StoreCalls::kCaller) return;
  thread_.emplace([this] {
    step();
    return UINT64_MAX;
  });
}

void LeaderFinder::seek() {
  wanted_ = true;
  if (thread_) thread_->wake();
}

void LeaderFinder::poll() {
  if (!thread_) step();
}

void LeaderFinder::step() {
  if (!wanted_.exchange(false)) return;
  auto leader = find_leader(*store_, now_ns() + kAskForNs, partition_);
  found_(leader ? Result<std::string>(std::move(leader->value)) : fail(leader.error()));
}

}  // namespace mc::metadata
