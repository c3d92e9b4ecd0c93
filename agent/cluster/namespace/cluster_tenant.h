// SPDX-License-Identifier: Apache-2.0
//
// A namespace as a member of the cluster. The class keeps the names and versions of the
//   objects, and the changes since the master was last told. The class checks peers' reads of the
//   pool, and knows which evicted objects are on the host's disks.
// Threads: The agent's loop.
// Owns: The book of versions, and the pins of objects that peers are reading.
// Trusts: No request of a peer. Generations and ranges are compared with the entry.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/namespace/stripe_table.h"
#include "agent/cluster/peer/peer_messages.h"
#include "agent/pool/version_book.h"
#include "agent/server/local_disks.h"
#include "agent/server/tenant.h"
#include "metadata/directory/directory_types.h"
#include "transport/region.h"

namespace mc::agent {

// Makes the versions of puts: the wall clock in nanoseconds, with the node id in the lowest ten
// bits. Each version is greater than any version seen before. A later put therefore has a greater
// version on every node.
class VersionClock {
 public:
  explicit VersionClock(MemberId node) : node_(node & kNodeMask) {}
  std::uint64_t next(std::uint64_t wall_ns) {
    last_ = std::max((last_ & ~kNodeMask) + kNodeMask + 1, wall_ns & ~kNodeMask) | node_;
    return last_;
  }
  // An upper bound of the versions given or seen, and of versions that other hosts with the same time have given.
  std::uint64_t latest(std::uint64_t wall_ns) const { return std::max(last_, wall_ns | kNodeMask); }
  void saw(std::uint64_t version) {
    if (version <= metadata::kLatestVersion) last_ = std::max(last_, version);
  }

 private:
  static constexpr std::uint64_t kNodeMask = 0x3ff;
  std::uint64_t node_;
  std::uint64_t last_ = 0;
};

class ClusterTenant;
// The namespaces of an agent.
using ClusterTenants = std::vector<std::unique_ptr<ClusterTenant>>;
// Null: the agent has no such namespace.
ClusterTenant* find_tenant(const ClusterTenants& tenants, const Tenant& tenant);
ClusterTenant* find_tenant(const ClusterTenants& tenants, std::string_view name);
ClusterTenant* find_tenant(const ClusterTenants& tenants, std::uint64_t id);
// Null: no namespace uses disks.
LocalDisks* disks_of(const ClusterTenants& tenants);

inline SharedName shared_name_of(const metadata::KeyHash& name) { return {name.hi, name.lo}; }

struct Change {
  metadata::PublishItem item;
  std::uint32_t entry = 0;  // of the object; unused for kDropped and for stripes
};

// Hears of the objects that appear on this host.
class ArrivalListener {
 public:
  virtual ~ArrivalListener() = default;
  // An entry became live by a put, a copy or a move.
  virtual void on_arrival(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) = 0;
  // A client of this host has put an object. Stripes are no objects.
  virtual void on_put(const metadata::PublishItem& put) = 0;
  // The host's disks do not have the object of this kFetch or kExists.
  virtual void on_not_on_disks(ClusterTenant& tenant, const std::shared_ptr<RemoteRequest>& request,
                               std::size_t item) = 0;
};

class ClusterTenant final : public StoreListener,
                            public SharedObjects,
                            public transport::RegionGuard {
 public:
  ClusterTenant(std::shared_ptr<Tenant> tenant, const metadata::KeyHasher& hasher,
                VersionClock& clock, std::unique_ptr<VersionBook> book,
                ArrivalListener* listener = nullptr);

  const std::shared_ptr<Tenant>& tenant() const { return tenant_; }
  ObjectStore& store() const { return *tenant_->store; }
  VersionBook& book() { return *book_; }
  std::uint64_t id() const override { return id_; }  // names the namespace to peers; not 0
  metadata::KeyHash name_of(std::string_view key) const;
  // Finds the object with that name; kNoEntry if there is none.
  std::uint32_t find(const metadata::KeyHash& name) const;
  metadata::PublishItem item_of(std::uint32_t entry) const;  // kHolds
  PlaceRow place_of(std::uint32_t entry) const;

  // ---- Stripes of large objects
  StripeTable& stripes() { return stripes_; }
  static metadata::PublishItem item_of(const StripeSet& set);  // kHolds
  PlaceRow place_of(const StripeSet& set, std::uint16_t number) const;
  bool is_stripe(std::uint32_t entry) const;
  // Returns the sealed set for exactly one entry of each part (the part's first stripe); null for
  // all other entries. A walk over the index thus meets each part once.
  const StripeSet* speaks_for(std::uint32_t entry);
  // Writes the set's facts beside the set's entries. If the agent restarts with this memory, the
  // next agent adopts the set from these rows. Called before the set is sealed.
  void write_rows(const StripeSet& set);
  // tell: report the drop, which the master does not know yet.
  void drop_stripes(SetId id, bool tell);
  // Bytes of a row that place_of() has just returned.
  std::vector<std::byte> bytes_of(const PlaceRow& row) const;

  // The next published object is a copy of this version. The master knows the object already.
  void expect_copy(std::uint64_t version) { expected_ = {.version = version}; }
  // Identifies the current content of the entry. A peer's read must carry this generation.
  std::uint64_t generation_of(std::uint32_t entry) const;
  // Gives a live object another version. False: no memory.
  bool set_version(std::uint32_t entry, std::uint64_t version);
  // The master has accepted the put.
  void told(std::uint32_t entry);
  bool unannounced(std::uint32_t entry) const;
  // Sets the wanted number of holders and announces the change to the master.
  bool set_replicas(std::uint32_t entry, std::uint8_t replicas);
  // From pool and disks. If the entry is a stripe, drops all stripes of the part. done: as of LocalDisks::drop().
  void drop(std::uint32_t entry, LocalDisks::Dropped done = {});

  // ---- Disks
  void set_disks(LocalDisks* disks) { disks_ = disks; }
  // Null: evicted objects of this namespace leave the host.
  LocalDisks* disks() const { return tenant_->on_disks ? disks_ : nullptr; }
  metadata::PublishItem item_of(const SharedObject& object) const;  // on a disk
  // No object of this host has a later version.
  std::uint64_t latest_version() const { return clock_.latest(wall_ns()); }
  SharedName shared_name(std::string_view key) const override {
    return shared_name_of(name_of(key));
  }
  std::uint32_t find(const SharedName& name) const override {
    return find(metadata::KeyHash{name.hi, name.lo});
  }
  SharedObject describe(std::uint32_t entry) const override;
  void expect_from_disk(const SharedObject* object) override;
  void left_disks(const SharedName& name, std::uint64_t version) override;
  void leave_pool(const SharedName& name, std::uint64_t up_to_version) override;
  void look_elsewhere(const std::shared_ptr<RemoteRequest>& request, std::size_t item) override;

  // Changes since the list was last emptied, in order.
  std::vector<Change>& changes() { return changes_; }
  transport::RegionId region = transport::kNoRegion;
  // The pool's counters when the transport was last told of the pool's memory.
  std::uint64_t told_size_changes = UINT64_MAX;  // not told yet
  std::uint64_t told_losses = 0;

  void on_live(std::uint32_t entry, const PutOrder& order) override;
  void on_moved(std::uint32_t from, std::uint32_t to) override;
  void on_gone(std::uint32_t entry) override;

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  void unpin(std::uint64_t ticket) override;
  void collect_pins(std::vector<std::uint64_t>& pins) const;

 private:
  PlaceRow place_of(std::uint32_t entry, std::uint64_t length) const;
  void adopt_stripes();
  void put_replaces(const SharedName& name, bool upsert);
  void tell_dropped(const SharedName& name, std::uint64_t version);

  std::shared_ptr<Tenant> tenant_;
  const metadata::KeyHasher& hasher_;
  VersionClock& clock_;
  std::unique_ptr<VersionBook> book_;
  ArrivalListener* const listener_;  // may be null
  std::uint64_t id_;
  // The next published object is not a put of this host. version 0: it is one.
  struct Expected {
    std::uint64_t version = 0;
    bool from_disk = false;  // else a copy
    std::uint8_t replicas = 1;
    VersionBook::Unannounced unannounced = VersionBook::Unannounced::kNo;
  };
  Expected expected_;
  LocalDisks* disks_ = nullptr;
  std::vector<Change> changes_;
  StripeTable stripes_;
  std::unordered_map<std::uint64_t, std::uint64_t> pins_;  // ticket to generation
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mc::agent
