// SPDX-License-Identifier: Apache-2.0
//
// What it is: the one contract of the cluster stores: a small, ordered map from keys to values that
//   outlives processes, with leases, compare-and-set and watches. It holds the leader's lock and
//   epoch, members, namespaces, node and segment descriptors: little data, nothing per object.
// Threads: any thread may call any function at any time; a call blocks its thread, at the latest
//   until its deadline. Callbacks of a watch come from that watch's own thread, one at a time.
// Owns: its connections. Watches must be destroyed before their store.
// Trusts: nobody. Keys, values and TTLs of callers are checked against the limits below; what a
//   server answers is foreign bytes, bounded and checked before it becomes one of these values.
//
// Errors of every call:
// - kStoreUnavailable: no server took the request by the deadline; it had no effect.
// - kOutcomeUnknown: a write was sent, its answer lost; it may take effect. Read before a retry.
// - MC_PERMISSION_DENIED: user, password or certificate refused.
// - MC_INVALID_ARGUMENT: a key, value or TTL outside the limits below.
// - MC_UNSUPPORTED: this kind of store cannot do that; see capabilities().
// - MC_NO_SPACE: the store is full. MC_TOO_LARGE: the answer is beyond the limits.
// - MC_CORRUPT: the answer is not of the server's protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::metadata {

inline constexpr mc_status kStoreUnavailable = MC_AGENT_UNAVAILABLE;
inline constexpr mc_status kOutcomeUnknown = MC_TIMEOUT;

// Grows with every change of the store, also across its restarts; so it serves as a fencing epoch.
// 0: no revision (the key is absent, or the store has none).
using Revision = std::uint64_t;
using LeaseId = std::uint64_t;
inline constexpr LeaseId kNoLease = 0;

// Keys: printable ASCII without blanks, '/' between parts. Beyond these: MC_INVALID_ARGUMENT.
inline constexpr std::size_t kMaxStoreKeyBytes = 512;
inline constexpr std::size_t kMaxStoreValueBytes = 1u << 20;
inline constexpr std::size_t kMaxListEntries = 65536;  // more: MC_TOO_LARGE
inline constexpr std::size_t kMaxListBytes = 64u << 20;
inline constexpr std::uint32_t kMinLeaseTtlMs = 100;
inline constexpr std::uint32_t kMaxLeaseTtlMs = 24u * 3600u * 1000u;

struct Capabilities {
  bool revisions = false;        // entries and writes carry revisions
  bool compare_and_set = false;  // also remove_if
  bool leases = false;
  bool list = false;
  bool watch = false;
  // What a leader election needs.
  bool elects() const { return compare_and_set && leases && revisions; }
};

struct Entry {
  std::string key;
  std::string value;
  Revision revision = 0;
  LeaseId lease = kNoLease;
};

// Entries by key. A watch from `revision` sees every later change.
struct Listing {
  std::vector<Entry> entries;
  Revision revision = 0;
};

struct Swap {
  bool applied = false;
  Revision revision = 0;  // applied: of the change; else of what is there (0: nothing)
};

struct Lease {
  LeaseId id = kNoLease;
  std::uint32_t ttl_ms =
      0;  // as granted: a store may round up (etcd: whole seconds, 1 or 2 s least)
};

struct WatchEvent {
  enum class Kind {
    kPut,     // entry is the key's value now
    kRemove,  // entry.key is gone: removed, or its lease ended
    kRelist,  // changes were missed: list() again; what follows is later than entry.revision
  };
  Kind kind = Kind::kPut;
  Entry entry;
};
// Changes come in the order of their revisions. One that was overwritten before it could be told
// may be left out. After a kRelist, events up to the listing's revision may repeat what it holds.
using WatchCallback = std::function<void(const WatchEvent&)>;

// Lives through lost connections and restarts of the server, until destroyed. The destructor waits
// for a callback that runs; it must not be called from one.
class Watch {
 public:
  virtual ~Watch() = default;
};

class ClusterStore {
 public:
  virtual ~ClusterStore() = default;

  virtual Capabilities capabilities() const = 0;
  // "redis 10.0.0.1:6379,10.0.0.2:6379", for messages: no secrets.
  virtual std::string name() const = 0;

  // MC_NOT_FOUND: no such key. deadline_ns: of now_ns(), as in every call.
  virtual Result<Entry> get(std::string_view key, std::uint64_t deadline_ns) = 0;
  // With a lease, the key goes when the lease ends; without, it stays. MC_NOT_FOUND: no such lease.
  virtual Result<Revision> put(std::string_view key, std::string_view value, LeaseId lease,
                               std::uint64_t deadline_ns) = 0;
  // Writes only if the key's revision is `expected` (0: it must be absent).
  virtual Result<Swap> compare_and_set(std::string_view key, Revision expected,
                                       std::string_view value, LeaseId lease,
                                       std::uint64_t deadline_ns) = 0;
  // MC_NOT_FOUND: there was none.
  virtual Status remove(std::string_view key, std::uint64_t deadline_ns) = 0;
  virtual Result<Swap> remove_if(std::string_view key, Revision expected,
                                 std::uint64_t deadline_ns) = 0;
  // Every key that begins with prefix (may be empty), at one moment.
  virtual Result<Listing> list(std::string_view prefix, std::uint64_t deadline_ns) = 0;

  virtual Result<Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) = 0;
  // The lease lives its whole TTL from here on. MC_NOT_FOUND: it has ended.
  virtual Status keep_alive(LeaseId lease, std::uint64_t deadline_ns) = 0;
  // Ends the lease and removes its keys. MC_NOT_FOUND: it has ended.
  virtual Status revoke(LeaseId lease, std::uint64_t deadline_ns) = 0;

  // Tells every change after from_revision (0: from when the watch has reached the store) of keys
  // that begin with prefix. Returns at once: a server that is away is waited for in the background.
  virtual Result<std::unique_ptr<Watch>> watch(std::string_view prefix, Revision from_revision,
                                               WatchCallback callback) = 0;
};

}  // namespace mc::metadata
