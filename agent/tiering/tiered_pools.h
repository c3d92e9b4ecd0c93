// SPDX-License-Identifier: Apache-2.0
//
// The namespaces whose evicted objects go to the tier on local disks.
//
//   ObjectStore ──evicts──► Demoter ────put──► tier::Log          Server ──LocalDisks──► TieredPools
//   ObjectStore ◄─publishes─ TierReads ◄─read──┘                                        (removals)
//
// Threads: the agent's loop.
// Owns: the demoter, the reads, and the removals under way. The log belongs to the Tier.
// Trusts: its caller; the Server has checked the keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/server/remote_request.h"
#include "agent/tier/log/log.h"
#include "agent/tiering/demoter.h"
#include "agent/tiering/tier_reads.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

class TieredPools final : public LocalDisks {
 public:
  // bytes_per_day: the plan of written bytes; 0: no limit.
  TieredPools(tier::Log& log, std::uint64_t bytes_per_day, std::uint64_t now_ns);
  // The stores keep objects no longer for the tier.
  ~TieredPools() override;

  void add_tenant(const std::shared_ptr<Tenant>& tenant) override;
  bool has(const Tenant& tenant, std::string_view key) const override;
  bool may_bring_back(const Tenant& tenant, std::string_view key) const override {
    return log_.may_bring_back(key, pool_of(tenant).id);
  }
  bool may_forget(std::size_t count) const override { return log_.may_remove(count); }
  void created(const Tenant& tenant, std::string_view key) override;
  void forget(const std::shared_ptr<RemoteRequest>& request, std::size_t item) override;
  void begin(const std::shared_ptr<RemoteRequest>& request, std::uint64_t now_ns) override;

  // Takes what the log has done, and goes on with the reads. Returns true if a request may be over.
  bool advance(std::uint64_t now_ns);
  // When advance() or the log has work that no disk announces; UINT64_MAX: never.
  std::uint64_t next_ns() const;
  // True if the log has got work since the last call.
  bool take_new_work() { return std::exchange(new_work_, false); }
  const Demoter::Counters& demotions() const { return demoter_.counters(); }
  const TierReads::Counters& reads() const { return reads_.counters(); }

 private:
  struct Pool final : TieredPool, Demotion {
    explicit Pool(TieredPools& with) : pools(with) {}
    bool begin(const Leaving& object) override;
    bool takes_objects() const override { return pools.log_.takes_puts(); }
    TieredPools& pools;
  };
  struct Removal {
    std::shared_ptr<RemoteRequest> request;
    std::size_t item = 0;
    bool was_there = false;
  };

  Pool& pool_of(const Tenant& tenant) const { return *pools_.at(&tenant); }
  void remove(Pool& pool, const std::shared_ptr<RemoteRequest>& request, std::size_t item);
  void end_removal(const tier::LogEnd& end);

  tier::Log& log_;
  Demoter demoter_;
  TierReads reads_;
  std::unordered_map<const Tenant*, std::unique_ptr<Pool>> pools_;
  std::unordered_map<std::uint64_t, Removal> removals_;  // by ticket
  std::vector<tier::LogEnd> ends_;
  bool settled_ = false;
  bool new_work_ = false;
  std::uint64_t now_ns_;
};

}  // namespace mc::agent
