// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/roster.h"

#include "libmc/base/clock.h"
#include "metadata/placement/partition_spread.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kReadEveryNs = 200 * kMs;
// For this long a partition without a leader is left to the master that the roster assigns.
constexpr std::uint64_t kHoldOffNs = 300 * kMs;
// A partition moves only after this long without another change, because each move is a recovery
// for its keys.
constexpr std::uint64_t kSettleNs = 3'000 * kMs;
constexpr std::string_view kMastersPrefix = "masters/";

}  // namespace

Roster::Roster(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t partitions,
               std::uint32_t ttl_ms, const StartStoreThread& start_thread)
    : store_(std::move(store)),
      address_(std::move(address)),
      partitions_(partitions),
      ttl_ms_(ttl_ms),
      thread_(start_thread([this] { return step(); })) {}

Roster::~Roster() {
  thread_.reset();
  if (lease_.id == kNoLease) return;
  static_cast<void>(store_->revoke(lease_.id, now_ns() + ttl_ms_ * kMs / 2));
}

bool Roster::may_take(std::uint32_t partition, std::uint64_t vacant_ns) const {
  if (vacant_ns >= kHoldOffNs) return true;
  const MutexLock lock(mutex_);
  return !wanted_.empty() && wanted_[partition] == address_;
}

bool Roster::gives_up(std::uint32_t partition, std::uint64_t now_ns) {
  const MutexLock lock(mutex_);
  if (wanted_.empty() || wanted_[partition] == address_) return false;
  if (now_ns < settled_ns_ + kSettleNs) return false;
  settled_ns_ = now_ns;
  return true;
}

// If the store cannot be read now, may_take() decides by time.
std::uint64_t Roster::step() {
  const std::uint64_t deadline_ns = now_ns() + ttl_ms_ * kMs / 2;
  if (sign_up(deadline_ns).ok()) read(deadline_ns);
  return now_ns() + kReadEveryNs;
}

Status Roster::sign_up(std::uint64_t deadline_ns) {
  if (lease_.id != kNoLease) {
    const Status status = store_->keep_alive(lease_.id, deadline_ns);
    if (status.code() != MC_NOT_FOUND) return status;
    lease_ = {};
  }
  const auto lease = store_->grant_lease(ttl_ms_, deadline_ns);
  if (!lease) return lease.error();
  const auto put = store_->put(std::string(kMastersPrefix) + address_, "", lease->id, deadline_ns);
  if (!put) return put.error();
  lease_ = *lease;
  return {};
}

void Roster::read(std::uint64_t deadline_ns) {
  const auto masters = store_->list(kMastersPrefix, deadline_ns);
  const auto locks = store_->list(kLeaderKey, deadline_ns);
  if (!masters || !locks) return;
  std::vector<std::string> names, leaders(partitions_);
  for (const Entry& entry : *masters) {
    names.push_back(entry.key.substr(kMastersPrefix.size()));
  }
  for (std::uint32_t partition = 0; partition < partitions_; ++partition) {
    const std::string key = leader_key(partition);
    for (const Entry& entry : *locks) {
      if (entry.key == key) leaders[partition] = entry.value;
    }
  }
  std::vector<std::string> wanted = spread_partitions(names, leaders);
  const MutexLock lock(mutex_);
  if (names != masters_ || leaders != leaders_) settled_ns_ = now_ns();
  masters_ = std::move(names);
  leaders_ = std::move(leaders);
  wanted_ = std::move(wanted);
}

}  // namespace mc::metadata
