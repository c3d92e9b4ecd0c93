// SPDX-License-Identifier: Apache-2.0
#include "libmc/transfer/cluster_names.h"

#include <chrono>
#include <thread>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"
#include "metadata/store/checks.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/memory/memory_store.h"
#include "metadata/store/store_url.h"

namespace mc::transfer {

namespace {

constexpr std::uint32_t kLeaseMs = 10'000;
constexpr std::chrono::milliseconds kRenewal(kLeaseMs / 4);
constexpr std::uint64_t kCallNs = 2'000'000'000;

std::string key_of(const std::string& name) { return "transfer/" + name; }

class ClusterNames final : public NameStore {
 public:
  explicit ClusterNames(std::unique_ptr<metadata::ClusterStore> store) : store_(std::move(store)) {}
  ~ClusterNames() override;

  Status publish(const std::string& name, const Address& address,
                 std::uint64_t deadline_ns) override;
  Result<Address> find(const std::string& name, std::uint64_t deadline_ns) override;

 private:
  Status put(std::uint64_t deadline_ns);
  void renew();

  const std::unique_ptr<metadata::ClusterStore> store_;
  // Written by publish(), then by the renewer alone, then by the destructor.
  std::string key_;  // empty: nothing is published
  std::string value_;
  metadata::Lease lease_;
  Mutex mutex_;
  Condition stops_;
  bool stop_ MC_GUARDED_BY(mutex_) = false;
  std::thread renewer_;
};

ClusterNames::~ClusterNames() {
  if (key_.empty()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stops_.notify_all();
  if (renewer_.joinable()) renewer_.join();
  const std::uint64_t deadline_ns = now_ns() + kCallNs;
  // Another engine may have taken over the name, so remove only this engine's address.
  const auto entry = store_->get(key_, deadline_ns);
  if (entry && entry->value == value_) static_cast<void>(store_->remove(key_, deadline_ns));
  if (lease_.id != metadata::kNoLease) static_cast<void>(store_->revoke(lease_.id, deadline_ns));
}

Status ClusterNames::put(std::uint64_t deadline_ns) {
  if (store_->capabilities().leases) {
    auto lease = store_->grant_lease(kLeaseMs, deadline_ns);
    if (!lease) return lease.error();
    lease_ = *lease;
  }
  auto written = store_->put(key_, value_, lease_.id, deadline_ns);
  return written ? Status() : written.error();
}

Status ClusterNames::publish(const std::string& name, const Address& address,
                             std::uint64_t deadline_ns) {
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

void ClusterNames::renew() {
  const auto next = [] { return std::chrono::steady_clock::now() + kRenewal; };
  MutexLock lock(mutex_);
  for (auto due = next(); !stop_;) {
    if (stops_.wait_until(mutex_, due) != std::cv_status::timeout) continue;
    lock.unlock();
    const std::uint64_t deadline_ns = now_ns() + kCallNs;
    const Status status = store_->keep_alive(lease_.id, deadline_ns);
    // The lease expired while the store was unreachable, so publish the name again.
    if (status.code() == MC_NOT_FOUND) static_cast<void>(put(deadline_ns));
    lock.lock();
    due = next();
  }
}

Result<Address> ClusterNames::find(const std::string& name, std::uint64_t deadline_ns) {
  if (Status status = metadata::check_key(key_of(name)); !status.ok()) return fail(status);
  auto entry = store_->get(key_of(name), deadline_ns);
  if (!entry && entry.error().code() == MC_NOT_FOUND) {
    return fail(MC_NOT_FOUND, "no engine has published the name '" + name + "' in " +
                                  store_->name() + "; was it opened with the same store?");
  }
  if (!entry) return fail(entry.error());
  return resolve(entry->value);
}

// The engines of this process share memory://, as long as one of them has the store open.
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

Result<std::unique_ptr<NameStore>> open_names(const std::string& url, const std::string& cluster) {
  if (url.empty() || url == "p2p") return std::make_unique<AddressNames>();
  auto store = open_store(url, cluster);
  if (!store) return fail(store.error());
  return std::make_unique<ClusterNames>(std::move(*store));
}

}  // namespace mc::transfer
