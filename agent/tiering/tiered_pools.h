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
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/server/local_disks.h"
#include "agent/tier/log/log.h"
#include "agent/tiering/demoter.h"
#include "agent/tiering/disk_keys.h"
#include "agent/tiering/disk_listings.h"
#include "agent/tiering/tier_reads.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

class TieredPools final : public LocalDisks {
 public:
  // bytes_per_day: the plan of written bytes; 0: no limit.
  TieredPools(tier::Log& log, std::uint64_t bytes_per_day, std::uint64_t now_ns);
  // The stores keep objects no longer for the tier.
  ~TieredPools() override;

  void add_tenant(const std::shared_ptr<Tenant>& tenant, SharedObjects* shared) override;
  bool has(const Tenant& tenant, std::string_view key) const override;
  bool may_bring_back(const Tenant& tenant, std::string_view key) const override {
    return log_.may_bring_back(pool_of(tenant).object(key));
  }
  bool may_forget(std::size_t count) const override { return log_.may_remove(count); }
  void created(const Tenant& tenant, std::string_view key) override;
  void forget(const std::shared_ptr<RemoteRequest>& request, std::size_t item) override;
  void begin(const std::shared_ptr<RemoteRequest>& request, std::uint64_t now_ns) override;
  void begin_item(const std::shared_ptr<RemoteRequest>& request, std::size_t item,
                  std::uint64_t now_ns) override;
  std::uint64_t version_of(const SharedName& name) const override;
  std::shared_ptr<Tenant> tenant_of(const SharedName& name) const override;
  void announced(const SharedName& name, std::uint64_t version) override;
  void drop(const SharedName& name, std::uint64_t up_to_version, Dropped done) override;
  std::optional<std::uint64_t> walk(const Tenant& tenant, std::uint64_t position,
                                    const Visit& visit) const override;
  std::unique_ptr<Keys> keys_of(const Tenant& tenant, bool want_keys) const override {
    return std::make_unique<DiskKeys>(log_, demoter_, pool_of(tenant), want_keys);
  }
  // Listings of a tenant: DiskListings::begin() and DiskListings::next_page().
  std::optional<std::uint64_t> begin_listing(const Tenant& tenant, std::string prefix,
                                             std::uint64_t since_sequence, std::uint64_t now_ns) {
    return listings_.begin(pool_of(tenant), std::move(prefix), since_sequence, now_ns);
  }
  void next_page(const Tenant& tenant, DiskListings::PageId id, std::size_t limit,
                 std::uint64_t now_ns, DiskListings::Done done) {
    new_work_ = true;
    listings_.next_page(pool_of(tenant), id, limit, now_ns, std::move(done));
  }
  bool recovering() const override { return log_.recovering(); }
  // A bounded step before the agent's end. Evicts objects of the pools, no faster than the disks take objects. The
  // objects with a hard pin come last. Returns false when no object is left that a disk takes.
  bool write_pools();
  // write_pools() ends hard pins: the agent has to end.
  bool writes_pins() const { return writes_pins_; }
  // The agent does not end after all.
  void stop_writing();
  // The objects since the first call of write_pools(). Lost objects were evicted and are on no disk. Objects that
  // are left are in the pools or on their way.
  struct Written {
    std::uint64_t objects = 0, lost = 0, left = 0;
  };
  Written written() const;
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
    bool keeps_up() const override { return pools.demoter_.keeps_up(*this); }
    TieredPools& pools;
    std::uint32_t next_unpinned = 0;  // entry of write_pools()
  };
  struct Removal {
    std::shared_ptr<RemoteRequest> request;
    std::size_t item = 0;
    bool was_there = false;
  };
  struct Drop {
    SharedName name;
    std::uint64_t up_to_version = 0;
    Dropped done;
  };

  // A removal, and the drops that wait for it.
  struct Dropping {
    SharedName name;
    std::vector<Dropped> done = {};
  };

  Pool& pool_of(const Tenant& tenant) const { return *pools_.at(&tenant); }
  bool end_some_pins(Pool& pool);
  void remove(Pool& pool, const std::shared_ptr<RemoteRequest>& request, std::size_t item);
  void end_removal(const tier::LogEnd& end);
  bool begin(Drop& drop);
  std::optional<std::uint64_t> put_of(const tier::ObjectName& object) const;
  void begin_drops_behind(std::uint64_t put);
  void begin_waiting_drops();
  bool end_drop(const tier::LogEnd& end);
  void tell_dropped();

  tier::Log& log_;
  Demoter demoter_;
  TierReads reads_;
  DiskListings listings_;
  std::unordered_map<const Tenant*, std::unique_ptr<Pool>> pools_;
  std::unordered_map<std::uint64_t, Removal> removals_;  // by ticket
  std::unordered_map<std::uint64_t, Dropping> drops_;    // by ticket
  // The tickets of these drops, by SharedName::lo.
  std::unordered_map<std::uint64_t, std::uint64_t> dropping_;
  std::deque<Drop> waiting_drops_;  // too many removals were under way
  // Drops of earlier objects, by the ticket of the put of a later object.
  std::unordered_multimap<std::uint64_t, Drop> drops_behind_puts_;
  std::vector<tier::LogEnd> ends_;
  std::vector<tier::Dropped> dropped_;
  // Of write_pools().
  std::optional<Demoter::Counters> before_writing_;
  std::size_t next_written_ = 0;  // pool
  bool writes_pins_ = false;
  bool settled_ = false;
  bool new_work_ = false;
  std::uint64_t now_ns_;
};

}  // namespace mc::agent
