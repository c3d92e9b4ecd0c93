// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/memory/memory_store.h"

#include <chrono>

#include "libmc/base/clock.h"
#include "metadata/store/checks.h"

namespace mc::metadata {

MemoryStore::MemoryStore(std::shared_ptr<MemoryState> state, std::string_view cluster_id)
    : state_(std::move(state)), prefix_(cluster_prefix(cluster_id)) {}

std::shared_ptr<MemoryState> MemoryStore::make_state() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
  return std::make_shared<MemoryState>(static_cast<Revision>(us), now_ns);
}

Capabilities MemoryStore::capabilities() const { return {true, true, true, true}; }

Result<Entry> MemoryStore::get(std::string_view key, std::uint64_t) {
  if (Status status = check_key(key); !status.ok()) return fail(status);
  auto entry = state_->get(full(key));
  if (!entry) return fail(MC_NOT_FOUND, no_such_key(key));
  entry->key = key;
  return *std::move(entry);
}

Result<Revision> MemoryStore::put(std::string_view key, std::string_view value, LeaseId lease,
                                  std::uint64_t) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  const auto swap = state_->write(full(key), value, lease, std::nullopt);
  if (!swap) return fail(MC_NOT_FOUND, no_such_lease(lease));
  return swap->revision;
}

Result<Swap> MemoryStore::compare_and_set(std::string_view key, Revision expected,
                                          std::string_view value, LeaseId lease, std::uint64_t) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  const auto swap = state_->write(full(key), value, lease, expected);
  if (!swap) return fail(MC_NOT_FOUND, no_such_lease(lease));
  return *swap;
}

Result<bool> MemoryStore::write_guarded(const Guard& guard, std::string_view key,
                                        const std::optional<std::string>& value, std::uint64_t) {
  if (Status status = check_guarded(guard, key, value); !status.ok()) return fail(status);
  return state_->write_guarded(full(guard.key), guard.revision, full(key), value);
}

Status MemoryStore::remove(std::string_view key, std::uint64_t) {
  if (Status status = check_key(key); !status.ok()) return status;
  if (!state_->remove(full(key))) return {MC_NOT_FOUND, no_such_key(key)};
  return {};
}

Result<std::vector<Entry>> MemoryStore::list(std::string_view prefix, std::uint64_t) {
  if (Status status = check_prefix(prefix); !status.ok()) return fail(status);
  auto listing = state_->list(full(prefix));
  if (!listing) return fail(list_too_large(prefix));
  for (Entry& entry : *listing) entry.key.erase(0, prefix_.size());
  return *std::move(listing);
}

Result<Lease> MemoryStore::grant_lease(std::uint32_t ttl_ms, std::uint64_t) {
  if (Status status = check_ttl(ttl_ms); !status.ok()) return fail(status);
  return state_->grant(ttl_ms);
}

Status MemoryStore::keep_alive(LeaseId lease, std::uint64_t) {
  return state_->keep_alive(lease) ? Status() : Status(MC_NOT_FOUND, no_such_lease(lease));
}

Status MemoryStore::revoke(LeaseId lease, std::uint64_t) {
  return state_->revoke(lease) ? Status() : Status(MC_NOT_FOUND, no_such_lease(lease));
}

}  // namespace mc::metadata
