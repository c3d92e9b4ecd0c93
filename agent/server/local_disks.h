// SPDX-License-Identifier: Apache-2.0
//
// The local disks with evicted objects, as the Server and the cluster see them. agent/tiering/ implements
//   LocalDisks; an agent without a tier has no implementation, and pays a null check. The cluster implements
//   SharedObjects for each of its namespaces.
//
//     Server, cluster ── LocalDisks ──► tiering          tiering ── SharedObjects ──► cluster
//
// Threads: the agent's loop.
// Owns: nothing.
// Trusts: its caller; the Server has checked keys and lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "agent/pool/version_book.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

// An object of a cluster, on a disk or about to be written.
struct SharedObject {
  SharedName name;
  std::uint64_t version = 0;  // of the put, equal at all hosts; 0: the object stays in the pool
  std::uint64_t length = 0;
  std::uint8_t replicas = 1;  // wanted, 1 to 8
  // Whether a master has accepted the put.
  VersionBook::Unannounced unannounced = VersionBook::Unannounced::kNo;
};

// The objects of a namespace, as the cluster knows them.
class SharedObjects {
 public:
  virtual ~SharedObjects() = default;

  // Names the namespace at all hosts of this cluster, and of no other cluster.
  virtual std::uint64_t id() const = 0;
  virtual SharedName shared_name(std::string_view key) const = 0;
  virtual std::uint32_t find(const SharedName& name) const = 0;  // in the pool, or kNoEntry
  virtual SharedObject describe(std::uint32_t entry) const = 0;
  // The next object that is published in the pool comes from a disk. nullptr: none comes.
  virtual void expect_from_disk(const SharedObject* object) = 0;
  // The object has left the disks, or was never written.
  virtual void left_disks(const SharedName& name, std::uint64_t version) = 0;
  // Versions up to this one leave the pool, because a drop has ordered that.
  virtual void leave_pool(const SharedName& name, std::uint64_t up_to_version) = 0;
  // A kFetch or kExists that the disks cannot end: `otherwise` of the item has the reason.
  virtual void look_elsewhere(const std::shared_ptr<RemoteRequest>& request, std::size_t item) = 0;
};

// Ends requests of tenants with `on_disks`.
class LocalDisks {
 public:
  virtual ~LocalDisks() = default;

  // Objects that are evicted from the tenant's pool go to the disks from now on. Sets Tenant::on_disks.
  // shared: null unless the tenant is clustered; lives as long as the tenant.
  virtual void add_tenant(const std::shared_ptr<Tenant>& tenant, SharedObjects* shared) = 0;
  // True if a disk has the object, or soon will have. False: no disk has the object, the disks are still being
  // read after a start, or the last read of the object failed.
  virtual bool has(const Tenant& tenant, std::string_view key) const = 0;
  // True if a restart may bring back an object of the key: a disk has, or soon will have, a record of the key,
  // damaged or not, or a removal is under way.
  virtual bool may_bring_back(const Tenant& tenant, std::string_view key) const = 0;
  // Whether forget() may be called so many times. False: too many removals are under way; ask again later.
  virtual bool may_forget(std::size_t count) const = 0;
  // The pool has a new object of the key, and may_bring_back() was false. Disks that are still being read after
  // a start forget theirs; nobody waits for that.
  virtual void created(const Tenant& tenant, std::string_view key) = 0;
  // Begins an item of a kForget, as soon as the pool has the later object. The caller counts open items.
  virtual void forget(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item) = 0;
  // kPin; kFetch, kExists, kRemove of a tenant that is not clustered.
  virtual void begin(const std::shared_ptr<RemoteRequest>& remote_request,
                     std::uint64_t now_ns) = 0;

  // ---- Objects of clusters
  // An item of a kFetch, kExists or kBring.
  virtual void begin_item(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
                          std::uint64_t now_ns) = 0;
  // The latest version of the object that a disk has, or soon will have. 0: none is known.
  virtual std::uint64_t version_of(const SharedName& name) const = 0;
  // Whose object that is. Null: no disk has the object.
  virtual std::shared_ptr<Tenant> tenant_of(const SharedName& name) const = 0;
  // A master has accepted the put.
  virtual void announced(const SharedName& name, std::uint64_t version) = 0;
  // Versions up to this one leave the disks. done, if not empty: called when nobody finds them and no restart
  // brings them back, possibly at once; false: a disk that failed may bring them back. At the agent's end,
  // `done` is destroyed without a call.
  using Dropped = std::function<void(bool durable)>;
  virtual void drop(const SharedName& name, std::uint64_t up_to_version, Dropped done) = 0;
  // Goes on with a walk over a tenant's objects on the disks, and on their way there: up to MC_MAX_BATCH_ITEMS
  // at a time. Start with 0. Returns the position to go on with, or nothing at the end. An object that stays is
  // visited, an object on its way possibly twice.
  using Visit = std::function<void(const SharedObject&)>;
  virtual std::optional<std::uint64_t> walk(const Tenant& tenant, std::uint64_t position,
                                            const Visit& visit) const = 0;
  // A walk over a tenant's objects on the disks, and on their way there, with their keys, which the disks have to
  // be asked for.
  class Keys {
   public:
    virtual ~Keys() = default;
    // kWaits: for a disk.
    enum class Next : std::uint8_t { kMore, kWaits, kOver };
    // The key is empty if it cannot be read, or is not wanted. May drop objects.
    using Visit = std::function<void(const SharedObject&, std::string_view key)>;
    // Visits a bounded number of objects. An object that stays is visited, possibly twice.
    virtual Next go_on(const Visit& visit) = 0;
  };
  // REQUIRES: the tenant and this object outlive the calls of go_on().
  // want_keys: false: the disks are not asked.
  virtual std::unique_ptr<Keys> keys_of(const Tenant& tenant, bool want_keys) const = 0;
  // After a start: the disks may have objects that are not known yet.
  virtual bool recovering() const = 0;
};

}  // namespace mc::agent
