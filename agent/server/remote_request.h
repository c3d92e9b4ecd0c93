// SPDX-License-Identifier: Apache-2.0
//
// What it is: the rest of the cluster, as the agent's loop and its Server see it. What must be done
//   elsewhere is an RemoteRequest: begun, then looked at again when the cluster says that some have ended.
//   agent/cluster/ implements it; an agent without a cluster has none, and pays a null check.
// Threads: the agent's loop.
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

// Keys that begin so are the cluster's own: of stripes of large objects. No client may use them.
inline constexpr std::string_view kStripePrefix{"\0mc stripe ", 11};

struct RemoteRequest {
  enum class Kind : std::uint8_t {
    kAnnounce,  // until the master knows the objects in these entries
    kFetch,     // objects that other hosts hold, for readers here
    kExists,    // and how long they are, wherever
    kRemove,
    kPlace,  // until another host holds the object, which finds no room here
  };
  struct Item {
    std::string key;                 // all but kAnnounce
    std::uint32_t entry = kNoEntry;  // kAnnounce: in. kFetch: out
    shm::Word64* pin = nullptr;      // kFetch: where the reader's pin goes
    std::uint64_t length = 0;        // kExists, out: of the object
    std::uint32_t number = 0;        // the request's item
    mc_status status = MC_OK;        // out
    bool open = true;
  };
  // kPlace, of one item: its bytes lie in memory that a session writes.
  struct Source {
    std::uint64_t session = 0;
    const MemoryFile* memory = nullptr;  // valid during begin()
    std::uint64_t offset = 0;
    PutOrder order;  // its key is the item's
  };
  Kind kind = Kind::kFetch;
  std::shared_ptr<Tenant> tenant;
  std::uint64_t deadline_ns = 0;
  std::vector<Item> items;
  Source source;
  std::size_t open_count = 0;
  bool abandoned = false;  // nobody waits; pins must not be written

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

  // The seed of key hashes and checksums: the same at all members.
  virtual std::uint64_t hash_seed(std::string_view name_space) const = 0;
  // kept: what an earlier agent's versions_file() was, or none. Sets the store's listener.
  virtual Status add_tenant(const std::shared_ptr<Tenant>& tenant, MemoryFile kept) = 0;
  virtual void remove_tenant(const Tenant& tenant) = 0;
  virtual const MemoryFile& versions_file(const Tenant& tenant) const = 0;
  // Objects that peers are being sent.
  virtual void collect_pins(const Tenant& tenant, std::vector<std::uint64_t>& pins) const = 0;

  virtual void begin(const std::shared_ptr<RemoteRequest>& remote_request,
                     std::uint64_t now_ns) = 0;
  // Objects of that size are to lie on several hosts, though there may be room here.
  virtual bool in_stripes(std::uint64_t bytes) const = 0;
  // Its memory is read no more, its remote requests of kPlace end.
  virtual void forget_session(std::uint64_t session) = 0;
  // True if any remote request has ended since the last call.
  virtual bool take_ended() = 0;

  // Readable when poll() has something to do.
  virtual int wait_fd() const = 0;
  // False: there was nothing to do.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Sends what the last round has gathered.
  virtual void flush(std::uint64_t now_ns) = 0;
  virtual std::uint64_t next_poll_ns() const = 0;
  // There is traffic, or was until a moment ago: poll without waiting for the descriptor.
  virtual bool lively(std::uint64_t now_ns) const = 0;
  // Another process has joined as this node, which must stop serving.
  virtual bool fenced() const = 0;

  // JSON: what mcctl's cluster verbs show. The request is JSON too; empty if there is no such verb.
  virtual std::string status_text() = 0;
  // Answered later, by done, from within poll(); false: no such verb.
  using Answer = std::function<void(std::string)>;
  virtual bool ask(std::string_view verb, std::string_view request, Answer done) = 0;
};

}  // namespace mc::agent
