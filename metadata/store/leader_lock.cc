// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

namespace {

Status no_leader() { return {MC_NOT_FOUND, "this process does not lead; campaign first"}; }

}  // namespace

std::string leader_key(std::uint32_t partition) {
  return partition == 0 ? std::string(kLeaderKey)
                        : std::string(kLeaderKey) + "s/" + std::to_string(partition);
}

Result<Leader> find_leader(ClusterStore& store, std::uint64_t deadline_ns,
                           std::uint32_t partition) {
  auto entry = store.get(leader_key(partition), deadline_ns);
  if (!entry) return fail(entry.error());
  return Leader{std::move(entry->value), entry->revision};
}

LeaderLock::LeaderLock(ClusterStore& store, std::string value, std::uint32_t ttl_ms,
                       std::function<std::uint64_t()> clock, std::uint32_t partition)
    : store_(store),
      key_(leader_key(partition)),
      value_(std::move(value)),
      wanted_ttl_ms_(ttl_ms),
      clock_(std::move(clock)) {}

// Counts from the request, not from the answer, because the store's count began in between.
void LeaderLock::extend(std::uint64_t asked_ns) {
  valid_until_ns_ = asked_ns + std::uint64_t{lease_.ttl_ms} * 900000;
}

Result<bool> LeaderLock::campaign(std::uint64_t deadline_ns) {
  if (!store_.capabilities().elects()) {
    return fail(MC_UNSUPPORTED,
                store_.name() +
                    " has no leases and no compare-and-set, so it cannot elect a leader; use "
                    "redis://, etcd:// or memory://");
  }
  const std::uint64_t asked_ns = clock_();
  epoch_ = 0;
  if (lease_.id == kNoLease || !store_.keep_alive(lease_.id, deadline_ns).ok()) {
    const auto lease = store_.grant_lease(wanted_ttl_ms_, deadline_ns);
    if (!lease) return fail(lease.error());
    lease_ = *lease;
  }
  const auto swap = store_.compare_and_set(key_, 0, value_, lease_.id, deadline_ns);
  if (swap && swap->applied) {
    epoch_ = swap->revision;
    extend(asked_ns);
    return true;
  }
  if (!swap && swap.error().code() != kOutcomeUnknown) return fail(swap.error());
  // An earlier attempt may have taken effect although the answer was lost.
  const auto entry = store_.get(key_, deadline_ns);
  if (entry && entry->lease == lease_.id) {
    epoch_ = entry->revision;
    extend(asked_ns);
    return true;
  }
  if (!entry && entry.error().code() != MC_NOT_FOUND) return fail(entry.error());
  return false;
}

Status LeaderLock::renew(std::uint64_t deadline_ns) {
  if (epoch_ == 0) return no_leader();
  const std::uint64_t asked_ns = clock_();
  const Status status = store_.keep_alive(lease_.id, deadline_ns);
  if (status.ok()) extend(asked_ns);
  if (status.code() == MC_NOT_FOUND) {
    epoch_ = 0;
    lease_ = {};
  }
  return status;
}

Status LeaderLock::outdate_guards(std::uint64_t deadline_ns) {
  if (epoch_ == 0) return no_leader();
  const auto swap = store_.compare_and_set(key_, epoch_, value_, lease_.id, deadline_ns);
  if (swap && swap->applied) {
    epoch_ = swap->revision;
    return {};
  }
  if (!swap && swap.error().code() != kOutcomeUnknown) return swap.error();
  // This attempt or an earlier one may have taken effect although the answer was lost.
  const auto entry = store_.get(key_, deadline_ns);
  if (!entry && entry.error().code() != MC_NOT_FOUND) return entry.error();
  if (!entry || entry->lease != lease_.id) return no_leader();
  if (entry->revision == epoch_) return swap.error();
  epoch_ = entry->revision;
  return {};
}

Status LeaderLock::resign(std::uint64_t deadline_ns) {
  epoch_ = 0;
  if (lease_.id == kNoLease) return {};
  const Status status = store_.revoke(lease_.id, deadline_ns);
  lease_ = {};
  return status.code() == MC_NOT_FOUND ? Status() : status;
}

}  // namespace mc::metadata
