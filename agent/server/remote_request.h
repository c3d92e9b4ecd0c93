// SPDX-License-Identifier: Apache-2.0
//
// The rest of the cluster, as the agent's loop and its Server see the cluster. Work for other hosts or for the
//   local disks (local_disks.h) is a RemoteRequest: the Server begins the request, and looks at the request
//   again when its end is reported. agent/cluster/ implements Cluster. An agent without a cluster has no
//   implementation, and pays a null check.
// Threads: the agent's loop.
// Owns: nothing; requests are shared with the Server.
// Trusts: its caller; the Server has checked keys and lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/server/tenant.h"
#include "libmc/base/memory_file.h"
#include "shm/layout.h"

namespace mc::agent {

class LocalDisks;
class SharedObjects;

// The name of an object in a cluster (metadata::KeyHash).
struct SharedName {
  std::uint64_t hi = 0, lo = 0;
  bool operator==(const SharedName&) const = default;
};

struct RemoteRequest {
  enum class Kind : std::uint8_t {
    kAnnounce,  // ends when the master knows the objects in these entries
    kFetch,     // objects that other hosts or the disks hold, for readers on this host
    kExists,    // existence and length, on any host or disk
    kRemove,
    kForget,    // ends when no restart brings an earlier object of the key back from a disk
    kPlace,     // ends when another host holds the object
    kReplicas,  // ends when as many hosts hold the objects as wanted
    kBring,     // an object of the disks comes into the pool, because another host asks
    kPin,       // objects of this host get another pin; those of the disks come into the pool
  };
  struct Item {
    std::string key;                     // all kinds but kAnnounce, which has the entry, and kBring
    SharedName name;                     // kBring
    std::uint32_t entry = kNoEntry;      // kAnnounce: input. kFetch: output
    shm::Word64* pin = nullptr;          // kFetch: the slot for the reader's pin
    std::uint64_t length = 0;            // kExists, output: length of the object
    mc_pin level = MC_PIN_NONE;          // kPin
    std::uint32_t pin_ttl_s = 0;         // kPin, of a soft pin
    std::uint32_t number = 0;            // index of the item in the client's request
    std::uint8_t replicas = 0;           // kReplicas: how many hosts shall hold the object
    mc_status otherwise = MC_NOT_FOUND;  // if no host has the object: why this host does not
    mc_status status = MC_OK;            // output
    bool open = true;
  };
  // kPlace, a single item: the bytes lie in memory that a session may write.
  struct Source {
    std::uint64_t session = 0;
    const MemoryFile* memory = nullptr;  // valid during begin()
    std::uint64_t offset = 0;
    PutOrder order;          // the key is in the item
    std::uint64_t host = 0;  // node id of the only host to ask; 0: the master names hosts
  };
  Kind kind = Kind::kFetch;
  std::shared_ptr<Tenant> tenant;
  std::uint64_t deadline_ns = 0;
  // Set by begin(): when a master is waited for no longer, so that the reason comes before the deadline.
  std::uint64_t answer_by_ns = 0;
  std::vector<Item> items;
  Source source;
  std::size_t open_count = 0;
  bool abandoned = false;  // no request waits any more; pins must not be written

  bool over() const { return open_count == 0; }
  void settle(Item& item, mc_status status) {
    if (!item.open) return;
    item.open = false;
    item.status = status;
    --open_count;
  }
};

class Cluster {
 public:
  virtual ~Cluster() = default;

  // The seed of key hashes and checksums, equal at all members.
  virtual std::uint64_t hash_seed(std::string_view name_space) const = 0;
  // kept: the versions_file() of an earlier agent, or an empty file. Sets the store's listener.
  virtual Status add_tenant(const std::shared_ptr<Tenant>& tenant, MemoryFile kept) = 0;
  virtual void remove_tenant(const Tenant& tenant) = 0;
  // The objects of a clustered tenant. Valid until remove_tenant().
  virtual SharedObjects* shared_objects(const Tenant& tenant) = 0;
  // Null: the agent has no tier. Call before the first tenant.
  virtual void set_disks(LocalDisks* disks) = 0;
  virtual const MemoryFile& versions_file(const Tenant& tenant) const = 0;
  // Appends the pins of objects that are being sent to peers.
  virtual void collect_pins(const Tenant& tenant, std::vector<std::uint64_t>& pins) const = 0;

  virtual void begin(const std::shared_ptr<RemoteRequest>& remote_request,
                     std::uint64_t now_ns) = 0;
  // True if objects of this size must lie on several hosts, even if this host has room.
  virtual bool in_stripes(std::uint64_t bytes) const = 0;
  // Reads the session's memory no more, and ends the session's kPlace requests.
  virtual void forget_session(std::uint64_t session) = 0;
  // True if any remote request has ended since the last call.
  virtual bool take_ended() = 0;

  // Readable when poll() has work.
  virtual int wait_fd() const = 0;
  // Returns false if there was no work.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Moves the requests on with all that poll() has brought, and sends the messages of this round.
  virtual void advance(std::uint64_t now_ns) = 0;
  virtual std::uint64_t next_poll_ns() const = 0;
  // True while there is traffic and for a moment after; then poll without waiting for the
  // descriptor.
  virtual bool lively(std::uint64_t now_ns) const = 0;
  // MC_CLOSED with the cause: this agent must stop serving, because another process has joined as this
  // node, or because the agent cannot reach masters any more.
  virtual const Status& fenced() const = 0;

  // JSON for mcctl's cluster verbs. The request is JSON too.
  virtual std::string status_text() = 0;
  // Answers later, through `done`, from within poll(). Returns false for an unknown verb.
  using Answer = std::function<void(std::string)>;
  virtual bool ask(std::string_view verb, std::string_view request, Answer done) = 0;
};

}  // namespace mc::agent
