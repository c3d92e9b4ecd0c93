// SPDX-License-Identifier: Apache-2.0
//
// The contract of the cluster stores, and their factory. A store is a small, ordered map from keys
//   to values. The map outlives processes and has leases and compare-and-set. The map holds the
//   leader's lock and epoch, members, namespaces, node and segment descriptors. The map holds
//   nothing per object.
// Threads: any thread may call any function at any time. A call blocks its thread until its
//   deadline at the latest.
// Owns: the connections.
// Trusts: no caller and no server. Keys, values and TTLs are checked against the limits below.
//   Answers of a server are bounded and checked before they become values.
//
//  Errors of every call:
//  - kStoreUnavailable: no server took the request by the deadline; the call had no effect.
//  - kOutcomeUnknown: a write was sent and the answer lost; the write may take effect. Read before
//  a retry.
//  - MC_PERMISSION_DENIED: user, password or certificate refused.
//  - MC_INVALID_ARGUMENT: a key, value or TTL outside the limits below.
//  - MC_UNSUPPORTED: this kind of store cannot do that; see capabilities().
//  - MC_NO_SPACE: the store is full. MC_TOO_LARGE: the answer is beyond the limits.
//  - MC_CORRUPT: the answer does not follow the server's protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::metadata {

inline constexpr mc_status kStoreUnavailable = MC_AGENT_UNAVAILABLE;
inline constexpr mc_status kOutcomeUnknown = MC_TIMEOUT;

// Grows with every change of the store, also across restarts, so a revision serves as a fencing
// epoch. Revision 0: the key is absent, or the store has no revisions.
using Revision = std::uint64_t;
using LeaseId = std::uint64_t;
inline constexpr LeaseId kNoLease = 0;

// Keys: printable ASCII without blanks, '/' between parts. Beyond the limits: MC_INVALID_ARGUMENT.
inline constexpr std::size_t kMaxStoreKeyBytes = 512;
inline constexpr std::size_t kMaxStoreValueBytes = 1u << 20;
inline constexpr std::size_t kMaxListEntries = 65536;  // more entries: MC_TOO_LARGE
inline constexpr std::size_t kMaxListBytes = 64u << 20;
inline constexpr std::uint32_t kMinLeaseTtlMs = 100;
inline constexpr std::uint32_t kMaxLeaseTtlMs = 24u * 3600u * 1000u;

struct Capabilities {
  bool revisions = false;  // entries and writes carry revisions
  bool compare_and_set = false;
  bool leases = false;
  bool list = false;
  // Whether the store can elect a leader.
  bool elects() const { return compare_and_set && leases && revisions; }
};

struct Entry {
  std::string key;
  std::string value;
  Revision revision = 0;
  LeaseId lease = kNoLease;
};

struct Swap {
  bool applied = false;
  Revision revision = 0;  // if applied, of this change; else the key's present revision (0: absent)
};

// The key of a lock and the revision that the holder of the lock wrote.
struct Guard {
  std::string key;
  Revision revision = 0;
};

struct Lease {
  LeaseId id = kNoLease;
  std::uint32_t ttl_ms = 0;  // as granted; etcd rounds up to whole seconds, 1 or 2 s least
};

class ClusterStore {
 public:
  virtual ~ClusterStore() = default;

  virtual Capabilities capabilities() const = 0;
  // "redis 10.0.0.1:6379,10.0.0.2:6379", for messages. Contains no secrets.
  virtual std::string name() const = 0;

  // MC_NOT_FOUND: the key is absent. deadline_ns: compares with now_ns(), as in every call.
  virtual Result<Entry> get(std::string_view key, std::uint64_t deadline_ns) = 0;
  // With a lease, the key ends with the lease. MC_NOT_FOUND: the lease does not exist.
  virtual Result<Revision> put(std::string_view key, std::string_view value, LeaseId lease,
                               std::uint64_t deadline_ns) = 0;
  // Writes only if the key's revision is `expected` (0: the key must be absent).
  virtual Result<Swap> compare_and_set(std::string_view key, Revision expected,
                                       std::string_view value, LeaseId lease,
                                       std::uint64_t deadline_ns) = 0;
  // Writes the value without a lease, or removes the key (nullopt; the key may be absent), only if
  // the guard's key has the guard's revision at that moment. False: the guard does not hold, and
  // nothing has changed. May be repeated.
  virtual Result<bool> write_guarded(const Guard& guard, std::string_view key,
                                     const std::optional<std::string>& value,
                                     std::uint64_t deadline_ns) = 0;
  // MC_NOT_FOUND: the key is absent.
  virtual Status remove(std::string_view key, std::uint64_t deadline_ns) = 0;
  // Every key that begins with prefix (may be empty), at a single moment, in key order.
  virtual Result<std::vector<Entry>> list(std::string_view prefix, std::uint64_t deadline_ns) = 0;

  virtual Result<Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) = 0;
  // Restarts the lease's whole TTL. MC_NOT_FOUND: the lease has ended.
  virtual Status keep_alive(LeaseId lease, std::uint64_t deadline_ns) = 0;
  // Ends the lease and removes its keys. MC_NOT_FOUND: the lease has ended.
  virtual Status revoke(LeaseId lease, std::uint64_t deadline_ns) = 0;

  // How the server may lose acknowledged writes, with the remedy; empty: not as far as the store
  // knows. MC_INVALID_ARGUMENT: masters cannot rely on a server with this configuration.
  virtual Result<std::string> risk_of_loss(std::uint64_t /*deadline_ns*/) { return std::string(); }
};

// Makes the store of a URL (store_url.h has the forms). Does not connect; the first call does.
// Errors: MC_INVALID_ARGUMENT with the remedy and without the URL.
Result<std::unique_ptr<ClusterStore>> open_cluster_store(std::string_view url,
                                                         std::string_view cluster_id);

}  // namespace mc::metadata
