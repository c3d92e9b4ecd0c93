// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_store.h"

#include "libmc/base/clock.h"
#include "metadata/master/elector.h"

namespace mc::sim {

namespace {

constexpr const char* kClusterId = "default";

}  // namespace

class SimStore final : public metadata::ClusterStore {
 public:
  SimStore(StoreWorld& world, HostId host) : world_(world), host_(host) {}

  metadata::Capabilities capabilities() const override { return inner().capabilities(); }
  std::string name() const override { return "simulated"; }
  Result<metadata::Entry> get(std::string_view key, std::uint64_t deadline_ns) override {
    if (Status status = reach(); !status.ok()) return fail(status);
    return inner().get(key, deadline_ns);
  }
  Result<metadata::Revision> put(std::string_view key, std::string_view value,
                                 metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    if (Status status = reach_to_write(); !status.ok()) return fail(status);
    return inner().put(key, value, lease, deadline_ns);
  }
  Result<metadata::Swap> compare_and_set(std::string_view key, metadata::Revision expected,
                                         std::string_view value, metadata::LeaseId lease,
                                         std::uint64_t deadline_ns) override {
    if (Status status = reach_to_write(); !status.ok()) return fail(status);
    return inner().compare_and_set(key, expected, value, lease, deadline_ns);
  }
  Result<bool> write_guarded(const metadata::Guard& guard, std::string_view key,
                             const std::optional<std::string>& value,
                             std::uint64_t deadline_ns) override {
    if (Status status = reach_to_write(); !status.ok()) return fail(status);
    return inner().write_guarded(guard, key, value, deadline_ns);
  }
  Status remove(std::string_view key, std::uint64_t deadline_ns) override {
    if (Status status = reach_to_write(); !status.ok()) return status;
    return inner().remove(key, deadline_ns);
  }
  Result<std::vector<metadata::Entry>> list(std::string_view prefix,
                                            std::uint64_t deadline_ns) override {
    if (Status status = reach(); !status.ok()) return fail(status);
    const bool absence = prefix.ends_with(metadata::kAwayPrefix) ||
                         prefix.ends_with(metadata::kRemovedPrefix) ||
                         prefix.ends_with(metadata::kPatternsPrefix);
    if (world_.hides_absence && absence) return std::vector<metadata::Entry>{};
    return inner().list(prefix, deadline_ns);
  }
  Result<metadata::Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) override {
    if (Status status = reach_to_write(); !status.ok()) return fail(status);
    return inner().grant_lease(ttl_ms, deadline_ns);
  }
  Status keep_alive(metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    if (Status status = reach(); !status.ok()) return status;
    return inner().keep_alive(lease, deadline_ns);
  }
  Status revoke(metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    if (Status status = reach(); !status.ok()) return status;
    return inner().revoke(lease, deadline_ns);
  }
  Result<std::string> risk_of_loss(std::uint64_t) override {
    if (Status status = reach(); !status.ok()) return fail(status);
    if (world_.may_lose_writes) return fail(MC_INVALID_ARGUMENT, "the store may lose writes");
    return std::string();
  }

 private:
  metadata::MemoryStore& inner() const { return *world_.content_; }
  Status reach() const {
    if (!world_.unreachable_.contains(host_)) return {};
    return {metadata::kStoreUnavailable, "the simulated store is out of reach"};
  }
  Status reach_to_write() const {
    if (Status status = reach(); !status.ok()) return status;
    if (world_.write_error_ == MC_OK) return {};
    return {world_.write_error_, "the simulated store refuses writes"};
  }

  StoreWorld& world_;
  const HostId host_;
};

StoreWorld::StoreWorld() { lose(); }

std::unique_ptr<metadata::ClusterStore> StoreWorld::client(HostId host) {
  return std::make_unique<SimStore>(*this, host);
}

// A store without content begins its revisions at the clock.
void StoreWorld::lose() {
  const metadata::Revision last = state_ == nullptr ? 0 : state_->revision();
  lose(std::max<metadata::Revision>(last + 1, 1000 + now_ns() / 1000));
}

void StoreWorld::lose(metadata::Revision first_revision) {
  state_ = std::make_shared<metadata::MemoryState>(first_revision, now_ns);
  content_ = std::make_unique<metadata::MemoryStore>(state_, kClusterId);
}

void StoreWorld::set_reachable(HostId host, bool reachable) {
  if (reachable) {
    unreachable_.erase(host);
  } else {
    unreachable_.insert(host);
  }
}

}  // namespace mc::sim
