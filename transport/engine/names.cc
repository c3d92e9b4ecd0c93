// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/names.h"

#include <chrono>

#include "libmc/base/clock.h"
#include "metadata/store/checks.h"
#include "metadata/store/memory/memory_store.h"
#include "metadata/store/open_store.h"
#include "metadata/store/store_url.h"

namespace mc::transfer {

namespace {

constexpr std::uint32_t kLeaseMs = 10'000;
constexpr std::uint64_t kRenewMs = kLeaseMs / 4;
constexpr std::uint64_t kCallNs = 2'000'000'000;

std::string key_of(const std::string& name) { return "transfer/" + name; }

// memory:// is shared by the engines of this process, as long as one of them has it open.
Result<std::unique_ptr<metadata::ClusterStore>> open_store(const std::string& url,
                                                           const std::string& cluster) {
  const auto parsed = metadata::parse_store_url(url);
  if (!parsed) return fail(parsed.error());
  if (parsed->kind != metadata::StoreUrl::Kind::kMemory) {
    return metadata::open_cluster_store(url, cluster);
  }
  if (Status status = metadata::check_cluster_id(cluster); !status.ok()) return fail(status);
  static const auto shared = metadata::MemoryStore::make_state();
  return std::make_unique<metadata::MemoryStore>(shared, cluster);
}

}  // namespace

Result<std::unique_ptr<Names>> Names::open(const std::string& url, const std::string& cluster) {
  if (url.empty() || url == "p2p") return std::unique_ptr<Names>(new Names(nullptr));
  auto store = open_store(url, cluster);
  if (!store) return fail(store.error());
  return std::unique_ptr<Names>(new Names(std::move(*store)));
}

Names::~Names() {
  if (!store_ || key_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_cv_.notify_all();
  if (renewer_.joinable()) renewer_.join();
  const std::uint64_t deadline_ns = now_ns() + kCallNs;
  // Only what is ours: another engine may have taken the name over.
  const auto entry = store_->get(key_, deadline_ns);
  if (entry && entry->value == value_) static_cast<void>(store_->remove(key_, deadline_ns));
  if (lease_.id != metadata::kNoLease) static_cast<void>(store_->revoke(lease_.id, deadline_ns));
}

Status Names::put(std::uint64_t deadline_ns) {
  if (store_->capabilities().leases) {
    auto lease = store_->grant_lease(kLeaseMs, deadline_ns);
    if (!lease) return lease.error();
    lease_ = *lease;
  }
  auto written = store_->put(key_, value_, lease_.id, deadline_ns);
  return written ? Status() : written.error();
}

Status Names::publish(const std::string& name, const Address& address, std::uint64_t deadline_ns) {
  if (!store_) return {};
  if (Status status = metadata::check_key(key_of(name)); !status.ok()) return status;
  key_ = key_of(name);
  value_ = text_of(address);
  Status status = put(deadline_ns);
  if (!status.ok()) {
    key_.clear();
    return status;
  }
  if (store_->capabilities().leases) renewer_ = std::thread([this] { renew(); });
  return {};
}

void Names::renew() {
  std::unique_lock lock(mutex_);
  while (!stop_cv_.wait_for(lock, std::chrono::milliseconds(kRenewMs), [this] { return stop_; })) {
    lock.unlock();
    const std::uint64_t deadline_ns = now_ns() + kCallNs;
    const Status status = store_->keep_alive(lease_.id, deadline_ns);
    // The store was away for longer than the lease: the name is made known again.
    if (status.code() == MC_NOT_FOUND) static_cast<void>(put(deadline_ns));
    lock.lock();
  }
}

Result<Address> Names::find(const std::string& name, std::uint64_t deadline_ns) {
  if (!store_) return resolve(name);
  if (Status status = metadata::check_key(key_of(name)); !status.ok()) return fail(status);
  auto entry = store_->get(key_of(name), deadline_ns);
  if (!entry && entry.error().code() == MC_NOT_FOUND) {
    return fail(MC_NOT_FOUND, "no engine has made the name '" + name + "' known in " +
                                  store_->name() + "; has it been opened with the same store?");
  }
  if (!entry) return fail(entry.error());
  return resolve(entry->value);
}

}  // namespace mc::transfer
