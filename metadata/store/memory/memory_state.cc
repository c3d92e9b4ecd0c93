// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/memory/memory_state.h"

#include "libmc/base/clock.h"

namespace mc::metadata {

Revision MemoryState::revision_of(std::string_view key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() ? found->second.revision : 0;
}

void MemoryState::set(std::string_view key, std::string_view value, LeaseId lease) {
  auto found = entries_.find(key);
  if (found == entries_.end()) found = entries_.emplace(std::string(key), Held{}).first;
  Held& held = found->second;
  if (const auto old = leases_.find(held.lease); old != leases_.end()) {
    old->second.keys.erase(found->first);
  }
  if (lease != kNoLease) leases_.at(lease).keys.insert(found->first);
  held = {std::string(value), ++revision_, lease};
}

void MemoryState::drop(Entries::iterator entry) {
  if (const auto term = leases_.find(entry->second.lease); term != leases_.end()) {
    term->second.keys.erase(entry->first);
  }
  entries_.erase(entry);
  ++revision_;
}

void MemoryState::end_lease(std::map<LeaseId, Term>::iterator term) {
  const std::set<std::string> keys = std::move(term->second.keys);
  leases_.erase(term);
  for (const std::string& key : keys) drop(entries_.find(key));
}

void MemoryState::end_leases() {
  const std::uint64_t now = clock_();
  for (auto term = leases_.begin(); term != leases_.end();) {
    const auto next = std::next(term);
    if (term->second.end_ns <= now) end_lease(term);
    term = next;
  }
}

std::optional<Entry> MemoryState::get(std::string_view key) {
  const MutexLock lock(mutex_);
  end_leases();
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return Entry{found->first, found->second.value, found->second.revision, found->second.lease};
}

std::optional<Swap> MemoryState::write(std::string_view key, std::string_view value, LeaseId lease,
                                       std::optional<Revision> expected) {
  const MutexLock lock(mutex_);
  end_leases();
  if (lease != kNoLease && !leases_.contains(lease)) return std::nullopt;
  const Revision there = revision_of(key);
  if (expected && *expected != there) return Swap{false, there};
  set(key, value, lease);
  return Swap{true, revision_};
}

bool MemoryState::write_guarded(std::string_view guard_key, Revision guard_revision,
                                std::string_view key, const std::optional<std::string>& value) {
  const MutexLock lock(mutex_);
  end_leases();
  if (revision_of(guard_key) != guard_revision) return false;
  if (value) {
    set(key, *value, kNoLease);
  } else if (const auto found = entries_.find(key); found != entries_.end()) {
    drop(found);
  }
  return true;
}

bool MemoryState::remove(std::string_view key) {
  const MutexLock lock(mutex_);
  end_leases();
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  drop(found);
  return true;
}

std::optional<std::vector<Entry>> MemoryState::list(std::string_view prefix) {
  const MutexLock lock(mutex_);
  end_leases();
  std::vector<Entry> listing;
  std::size_t bytes = 0;
  for (auto entry = entries_.lower_bound(prefix);
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    bytes += entry->first.size() + entry->second.value.size();
    if (bytes > kMaxListBytes || listing.size() == kMaxListEntries) return std::nullopt;
    listing.push_back(
        {entry->first, entry->second.value, entry->second.revision, entry->second.lease});
  }
  return listing;
}

Lease MemoryState::grant(std::uint32_t ttl_ms) {
  const MutexLock lock(mutex_);
  end_leases();
  const std::uint64_t ttl_ns = ttl_ms * kMs;
  leases_[++last_lease_] = {ttl_ns, clock_() + ttl_ns, {}};
  return {last_lease_, ttl_ms};
}

bool MemoryState::keep_alive(LeaseId lease) {
  const MutexLock lock(mutex_);
  end_leases();
  const auto term = leases_.find(lease);
  if (term == leases_.end()) return false;
  term->second.end_ns = clock_() + term->second.ttl_ns;
  return true;
}

bool MemoryState::revoke(LeaseId lease) {
  const MutexLock lock(mutex_);
  end_leases();
  const auto term = leases_.find(lease);
  if (term == leases_.end()) return false;
  end_lease(term);
  return true;
}

Revision MemoryState::revision() {
  const MutexLock lock(mutex_);
  return revision_;
}

}  // namespace mc::metadata
