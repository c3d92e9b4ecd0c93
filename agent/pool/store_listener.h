// SPDX-License-Identifier: Apache-2.0
//
// The interfaces through which an ObjectStore reports objects that come and go. The
//   cluster listens and informs the master. A store without a cluster has no listener. A tier on local
//   disks takes objects that are evicted.
// Threads: the agent's loop. The calls come from within the store's own calls, so a listener must
//   not call the store.
// Owns: nothing.
// Trusts: the store.
#pragma once

#include <cstdint>
#include <string_view>

#include "mc/mc.h"

namespace mc::agent {

// A client's wish to store an object.
struct PutOrder {
  std::string_view key;
  std::uint32_t entry = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  std::uint64_t parent_hash = 0;
  mc_pin pin = MC_PIN_NONE;
  std::uint32_t pin_ttl_s = 0;
  bool upsert = false;
  std::uint32_t group = 0;
  std::uint8_t replicas = 1;  // wanted in the cluster
};

class StoreListener {
 public:
  virtual ~StoreListener() = default;
  // The entry is live and can be found.
  virtual void on_live(std::uint32_t entry, const PutOrder& order) = 0;
  // The same object moved to another entry; `from` leaves without an on_gone().
  virtual void on_moved(std::uint32_t from, std::uint32_t to) = 0;
  // The entry can no longer be found; its key and length are still readable.
  virtual void on_gone(std::uint32_t entry) = 0;
};

class Demotion {
 public:
  virtual ~Demotion() = default;
  struct Leaving {
    std::uint32_t entry = 0;  // live
    bool used = false;        // a reader has used the object since its put
    bool may_stay = true;     // false: a request waits for the bytes
    bool paced = false;       // the caller has asked keeps_up(): many bytes may be on their way
  };
  // An object is about to be evicted. Returns true if the object's bytes must stay until
  // ObjectStore::end_demotion().
  virtual bool begin(const Leaving& object) = 0;
  // False: begin() takes no object now.
  virtual bool takes_objects() const = 0;
  // False: an eviction that nobody waits for should go on later, so that no object is lost.
  virtual bool keeps_up() const = 0;
};

}  // namespace mc::agent
