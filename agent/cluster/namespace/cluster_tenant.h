// SPDX-License-Identifier: Apache-2.0
//
// What it is: a namespace as a part of the cluster's: the names and versions of its objects, what
//   became of them since the master was last told, and its pool as peers may read it.
// Threads: the agent's loop. Owns: the book of versions, pins of what peers are being sent.
// Trusts: nothing in what peers ask for: generations and ranges are compared with the entry.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/peer/peer_messages.h"
#include "agent/cluster/stripe/stripe_table.h"
#include "agent/pool/version_book.h"
#include "agent/server/tenant.h"
#include "metadata/directory/directory_types.h"
#include "transport/region.h"

namespace mc::agent {

// Versions of puts: the wall clock's nanoseconds with the node in the lowest bits, always more than
// any version seen before, so that a later put has a greater one, on whatever node.
class VersionClock {
 public:
  explicit VersionClock(MemberId node) : node_(node & kNodeMask) {}
  std::uint64_t next(std::uint64_t wall_ns) {
    last_ = std::max((last_ & ~kNodeMask) + kNodeMask + 1, wall_ns & ~kNodeMask) | node_;
    return last_;
  }
  // What no clock can have made for some centuries is not believed.
  void saw(std::uint64_t version) {
    if (version <= kLatest) last_ = std::max(last_, version);
  }

 private:
  static constexpr std::uint64_t kNodeMask = 0x3ff;
  static constexpr std::uint64_t kLatest = UINT64_MAX / 2;
  std::uint64_t node_;
  std::uint64_t last_ = 0;
};

struct Change {
  metadata::PublishItem item;
  std::uint32_t entry = 0;  // kHolds, kCreates: whose it is; not of stripes
};

class ClusterTenant final : public StoreListener, public transport::RegionGuard {
 public:
  ClusterTenant(std::shared_ptr<Tenant> tenant, const metadata::KeyHasher& hasher,
                VersionClock& clock, std::unique_ptr<VersionBook> book);

  const std::shared_ptr<Tenant>& tenant() const { return tenant_; }
  ObjectStore& store() const { return *tenant_->store; }
  VersionBook& book() { return *book_; }
  std::uint64_t id() const { return id_; }  // names the namespace to peers; not 0
  metadata::KeyHash name_of(std::string_view key) const;
  static std::uint64_t wall_ns();
  // The object with that name, or kNoEntry.
  std::uint32_t find(const metadata::KeyHash& name) const;
  metadata::PublishItem item_of(std::uint32_t entry) const;  // kHolds
  PlaceRow place_of(std::uint32_t entry) const;

  // ---- Stripes of large objects
  StripeTable& stripes() { return stripes_; }
  static metadata::PublishItem item_of(const StripeSet& set);  // kHolds
  PlaceRow place_of(const StripeSet& set, std::uint16_t number) const;
  bool is_stripe(std::uint32_t entry) const;
  // Once for each part of an object in stripes, of which this entry is one; else none.
  const StripeSet* speaks_for(std::uint32_t entry);
  // Writes what is known of a set beside its entries. One that is to be sealed: another agent that
  // starts with this memory holds it.
  void write_rows(const StripeSet& set);
  // tell: the master does not know that it goes.
  void drop_stripes(SetId id, bool tell);
  // Of what place_of() has just told.
  std::vector<std::byte> bytes_of(const PlaceRow& row) const;

  // The next object that is published is a copy of this version: the master knows of it already.
  void expect_copy(std::uint64_t version) { expected_version_ = version; }
  // Names what lies in the entry now, of all that ever did: what a peer's read must match.
  std::uint64_t generation_of(std::uint32_t entry) const;
  // Gives a live object another version; false: no memory.
  bool set_version(std::uint32_t entry, std::uint64_t version);
  // The master has taken the put.
  void told(std::uint32_t entry);
  bool unannounced(std::uint32_t entry) const;
  // Wants that many holders from now on, and says so to the master.
  bool set_replicas(std::uint32_t entry, std::uint8_t replicas);
  // Of a stripe: with all of its part.
  void drop(std::uint32_t entry);

  // What has changed since it was last emptied, in order.
  std::vector<Change>& changes() { return changes_; }
  transport::RegionId region = transport::kNoRegion;
  // Of the pool, as the transport was told last.
  std::uint64_t told_size_changes = UINT64_MAX;  // nothing yet
  std::uint64_t told_losses = 0;
  // Hears of each put here.
  std::function<void(const metadata::PublishItem& put)> on_put;
  // Hears of each entry that becomes live here: put, copied or moved. None: nobody walks the index.
  std::function<void(std::uint32_t entry, bool is_put)> on_arrival;

  void on_live(std::uint32_t entry, const PutOrder& order) override;
  void on_moved(std::uint32_t from, std::uint32_t to) override;
  void on_gone(std::uint32_t entry) override;

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  void unpin(std::uint64_t ticket) override;
  void collect_pins(std::vector<std::uint64_t>& pins) const;

 private:
  PlaceRow place_of(std::uint32_t entry, std::uint64_t length) const;
  void adopt_stripes();

  std::shared_ptr<Tenant> tenant_;
  const metadata::KeyHasher& hasher_;
  VersionClock& clock_;
  std::unique_ptr<VersionBook> book_;
  std::uint64_t id_;
  std::uint64_t expected_version_ = 0;
  std::vector<Change> changes_;
  StripeTable stripes_;
  std::unordered_map<std::uint64_t, std::uint64_t> pins_;  // ticket to generation
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mc::agent
