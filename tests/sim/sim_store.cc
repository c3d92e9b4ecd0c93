// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_store.h"

#include <algorithm>
#include <type_traits>

#include "libmc/base/clock.h"
#include "metadata/master/elector.h"

namespace mc::sim {

namespace {

constexpr const char* kClusterId = "default";

}  // namespace

class SimStore final : public metadata::ClusterStore {
 public:
  SimStore(StoreWorld& world, HostId host) : world_(world), host_(host) {}

  metadata::Capabilities capabilities() const override { return world_.content_->capabilities(); }
  std::string name() const override { return "simulated"; }
  Result<metadata::Entry> get(std::string_view key, std::uint64_t deadline_ns) override {
    if (Status status = reach(deadline_ns); !status.ok()) return fail(status);
    return world_.content_->get(key, deadline_ns);
  }
  Result<metadata::Revision> put(std::string_view key, std::string_view value,
                                 metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    return write<Result<metadata::Revision>>(
        deadline_ns, [key = std::string(key), value = std::string(value), lease](auto& store) {
          return store.put(key, value, lease, 0);
        });
  }
  Result<metadata::Swap> compare_and_set(std::string_view key, metadata::Revision expected,
                                         std::string_view value, metadata::LeaseId lease,
                                         std::uint64_t deadline_ns) override {
    return write<Result<metadata::Swap>>(
        deadline_ns,
        [key = std::string(key), expected, value = std::string(value), lease](auto& store) {
          return store.compare_and_set(key, expected, value, lease, 0);
        });
  }
  Result<bool> write_guarded(const metadata::Guard& guard, std::string_view key,
                             const std::optional<std::string>& value,
                             std::uint64_t deadline_ns) override {
    return write<Result<bool>>(deadline_ns, [guard, key = std::string(key), value](auto& store) {
      return store.write_guarded(guard, key, value, 0);
    });
  }
  Status remove(std::string_view key, std::uint64_t deadline_ns) override {
    return write<Status>(deadline_ns,
                         [key = std::string(key)](auto& store) { return store.remove(key, 0); });
  }
  Result<std::vector<metadata::Entry>> list(std::string_view prefix,
                                            std::uint64_t deadline_ns) override {
    if (Status status = reach(deadline_ns); !status.ok()) return fail(status);
    const bool absence = prefix.ends_with(metadata::kAwayPrefix) ||
                         prefix.ends_with(metadata::kRemovedPrefix) ||
                         prefix.ends_with(metadata::kPatternsPrefix);
    if (world_.hides_absence && absence) return std::vector<metadata::Entry>{};
    return world_.content_->list(prefix, deadline_ns);
  }
  Result<metadata::Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) override {
    return write<Result<metadata::Lease>>(
        deadline_ns, [ttl_ms](auto& store) { return store.grant_lease(ttl_ms, 0); });
  }
  Status keep_alive(metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    return renew_or_end(deadline_ns, [lease](auto& store) { return store.keep_alive(lease, 0); });
  }
  Status revoke(metadata::LeaseId lease, std::uint64_t deadline_ns) override {
    return renew_or_end(deadline_ns, [lease](auto& store) { return store.revoke(lease, 0); });
  }
  Result<std::string> risk_of_loss(std::uint64_t deadline_ns) override {
    if (Status status = reach(deadline_ns); !status.ok()) return fail(status);
    if (world_.may_lose_writes) return fail(MC_INVALID_ARGUMENT, "the store may lose writes");
    return std::string();
  }

 private:
  // Returns when the server takes a call, or kStoreUnavailable.
  Status reach(std::uint64_t deadline_ns) const {
    for (;;) {
      if (world_.unreachable_.contains(host_)) {
        return {metadata::kStoreUnavailable, "the simulated store is out of reach"};
      }
      if (!world_.silent_.contains(host_)) return {};
      if (now_ns() >= deadline_ns || !SimStoreThread::stand_still(deadline_ns)) {
        return {metadata::kStoreUnavailable,
                "the simulated store has not answered by the deadline"};
      }
    }
  }
  // refusal: the code of a store that refuses the change; MC_OK: the store takes the change. kOutcomeUnknown: the
  // server may execute the change later.
  template <typename Answer, typename Change>
  Answer make(std::uint64_t deadline_ns, mc_status refusal, const Change& change) const {
    const bool was_silent = world_.silent_.contains(host_);
    Status status = reach(deadline_ns);
    if (!status.ok() && was_silent && world_.random_.chance(0.5)) {
      const auto late = [change](auto& store) { static_cast<void>(change(store)); };
      world_.late_writes_.push_back({.host = host_, .execute = late});
      status = {metadata::kOutcomeUnknown, std::string(status.text())};
    }
    if (status.ok() && refusal != MC_OK) status = {refusal, "the simulated store refuses writes"};
    if (status.ok()) return change(*world_.content_);
    if constexpr (std::is_same_v<Answer, Status>) {
      return status;
    } else {
      return fail(status);
    }
  }
  template <typename Answer, typename Change>
  Answer write(std::uint64_t deadline_ns, const Change& change) const {
    return make<Answer>(deadline_ns, world_.write_error_, change);
  }
  // A store that refuses writes still renews and ends leases.
  template <typename Change>
  Status renew_or_end(std::uint64_t deadline_ns, const Change& change) const {
    return make<Status>(deadline_ns, MC_OK, change);
  }

  StoreWorld& world_;
  const HostId host_;
};

StoreWorld::StoreWorld(std::uint64_t seed) : random_(seed) { lose(); }

std::unique_ptr<metadata::ClusterStore> StoreWorld::client(HostId host) {
  return std::make_unique<SimStore>(*this, host);
}

metadata::StartStoreThread StoreWorld::start_thread(HostId host) {
  return [this, host](metadata::StoreThread::Step step) {
    return std::make_unique<SimStoreThread>(std::move(step), threads_[host]);
  };
}

void StoreWorld::run_threads(HostId host) {
  execute_late_writes();
  for (SimStoreThread* thread : threads_[host]) thread->run(silent_.contains(host));
}

// The bytes of a write may have been on their way when the server or the network stood still. So a write may
// be executed after later writes, which went over another connection.
void StoreWorld::set_silent(HostId host, bool silent) {
  if (silent) {
    silent_.insert(host);
    return;
  }
  silent_.erase(host);
  for (LateWrite& write : late_writes_) {
    if (write.host != host || write.at_ns != UINT64_MAX) continue;
    write.at_ns = now_ns() + random_.between(0, 100) * kMs;
  }
}

void StoreWorld::execute_late_writes() {
  std::erase_if(late_writes_, [this](const LateWrite& write) {
    if (write.at_ns > now_ns()) return false;
    write.execute(*content_);
    return true;
  });
}

// A store without content begins its revisions at the clock.
void StoreWorld::lose() {
  const metadata::Revision last = state_ == nullptr ? 0 : state_->revision();
  lose(std::max<metadata::Revision>(last + 1, 1000 + now_ns() / 1000));
}

void StoreWorld::lose(metadata::Revision first_revision) {
  late_writes_.clear();
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
