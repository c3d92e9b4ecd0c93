// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/memory/memory_state.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/base/fd.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxLogEntries = 4096;
constexpr std::uint64_t kLongestWaitMs = 1000;

}  // namespace

void MemoryState::log(bool put, const std::string& key) {
  log_.push_back({revision_, put, key});
  if (log_.size() > kMaxLogEntries) {
    log_floor_ = log_.front().revision;
    log_.pop_front();
  }
  for (const int bell : bells_) signal_eventfd(bell);
}

void MemoryState::drop(Entries::iterator entry) {
  if (const auto term = leases_.find(entry->second.lease); term != leases_.end()) {
    term->second.keys.erase(entry->first);
  }
  const std::string key = entry->first;
  entries_.erase(entry);
  ++revision_;
  log(false, key);
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
  auto found = entries_.find(key);
  const Revision there = found != entries_.end() ? found->second.revision : 0;
  if (expected && *expected != there) return Swap{false, there};
  if (found == entries_.end()) found = entries_.emplace(std::string(key), Held{}).first;
  Held& held = found->second;
  if (const auto old = leases_.find(held.lease); old != leases_.end()) {
    old->second.keys.erase(found->first);
  }
  if (lease != kNoLease) leases_.at(lease).keys.insert(found->first);
  held = {std::string(value), ++revision_, lease};
  log(true, found->first);
  return Swap{true, revision_};
}

Swap MemoryState::remove(std::string_view key, std::optional<Revision> expected) {
  const MutexLock lock(mutex_);
  end_leases();
  const auto found = entries_.find(key);
  if (found == entries_.end()) return {false, 0};
  if (expected && *expected != found->second.revision) return {false, found->second.revision};
  drop(found);
  return {true, revision_};
}

std::optional<Listing> MemoryState::list(std::string_view prefix) {
  const MutexLock lock(mutex_);
  end_leases();
  Listing listing;
  listing.revision = revision_;
  std::size_t bytes = 0;
  for (auto entry = entries_.lower_bound(prefix);
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    bytes += entry->first.size() + entry->second.value.size();
    if (bytes > kMaxListBytes || listing.entries.size() == kMaxListEntries) return std::nullopt;
    listing.entries.push_back(
        {entry->first, entry->second.value, entry->second.revision, entry->second.lease});
  }
  return listing;
}

Lease MemoryState::grant(std::uint32_t ttl_ms) {
  const MutexLock lock(mutex_);
  end_leases();
  const std::uint64_t ttl_ns = ttl_ms * kMs;
  leases_[++last_lease_] = {ttl_ns, clock_() + ttl_ns, {}};
  for (const int bell : bells_) signal_eventfd(bell);  // watches sleep until the first lease's end
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

MemoryState::Changes MemoryState::changes(std::string_view prefix, Revision position) {
  const MutexLock lock(mutex_);
  end_leases();
  Changes result;
  result.position = revision_;
  result.lost = position < log_floor_ || position > revision_;
  result.next_end_ms = kLongestWaitMs;
  for (const auto& [id, term] : leases_) {
    const std::uint64_t left_ms = (term.end_ns - std::min(term.end_ns, clock_())) / kMs + 1;
    result.next_end_ms = std::min(result.next_end_ms, left_ms);
  }
  if (result.lost) return result;
  auto change = std::upper_bound(log_.begin(), log_.end(), position,
                                 [](Revision at, const Change& c) { return at < c.revision; });
  for (; change != log_.end(); ++change) {
    if (!change->key.starts_with(prefix)) continue;
    WatchEvent event{WatchEvent::Kind::kRemove, {change->key, "", change->revision, kNoLease}};
    if (change->put) {
      const auto entry = entries_.find(change->key);
      // Overwritten or removed since: a later change in the log covers this key.
      if (entry == entries_.end() || entry->second.revision != change->revision) continue;
      event = {WatchEvent::Kind::kPut,
               {change->key, entry->second.value, change->revision, entry->second.lease}};
    }
    result.events.push_back(std::move(event));
  }
  return result;
}

void MemoryState::ring_on_change(int bell) {
  const MutexLock lock(mutex_);
  bells_.insert(bell);
}

void MemoryState::ring_no_more(int bell) {
  const MutexLock lock(mutex_);
  bells_.erase(bell);
}

}  // namespace mc::metadata
