// SPDX-License-Identifier: Apache-2.0
//
// One namespace's pool: its reservations, its objects, and the room for both.
//
//   reserve ─► kReserved ─publish─► kLive ─evict, remove, replace, move─► kLimbo ─reclaim─► kFree
//
//   A single atomic store of an entry's version word changes the state of an object. All other
//   knowledge of the agent (allocator, policy, groups) is rebuilt from the entries after a crash.
// Threads: the agent's loop. Readers in other processes read the index and the pool meanwhile.
// Owns: index, pool, policy, and the classes that work on the three.
// Trusts: the caller has checked the session. Lengths, entries and keys come from a client, and are
//   checked here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/pool/clearing.h"
#include "agent/pool/entry_extents.h"
#include "agent/pool/evictor.h"
#include "agent/pool/limbo.h"
#include "agent/pool/live_objects.h"
#include "agent/pool/mover.h"
#include "agent/pool/shrinker.h"

namespace mc::agent {

struct ListedObject {
  std::string key;
  std::uint64_t length = 0, version = 0;
  std::uint32_t extent_count = 0, group = 0;
  mc_pin pin = MC_PIN_NONE;
};

// The request whose answer names a reservation. The entry keeps the request in the file: if the
// answer is lost with the agent, the client repeats the request, and the old reservation is freed.
struct GrantedTo {
  std::uint64_t channel = 0;
  std::uint64_t request_id = 0;
  bool operator==(const GrantedTo&) const = default;
};

class ObjectStore {
 public:
  struct Config {
    std::uint64_t pool_bytes = 0, max_pool_bytes = 0, capacity_bytes = 0;
    std::uint32_t arenas = 1;
    HugePages huge_pages = HugePages::kOff;
    std::string policy;
    bool isolated = false;
    bool repeatable = false;  // a fixed hash seed
    std::uint64_t node_id = 0, incarnation = 0;
    std::optional<std::uint64_t> hash_seed;  // of a cluster's namespace; else a random seed
  };
  using CollectPins = Limbo::CollectPins;
  // True if the session that made a reservation still exists, at recovery.
  using SessionKnown = std::function<bool(std::uint64_t session_id)>;

  static Result<std::unique_ptr<ObjectStore>> create(const Config& config,
                                                     CollectPins collect_pins);
  // Takes over the files of an earlier agent. Damaged entries are set aside and counted; the store
  // serves the others. on_progress is called again and again meanwhile. Readers find every object in
  // the meantime. Errors: MC_CORRUPT if no part of the files can be trusted.
  static Result<std::unique_ptr<ObjectStore>> recover(
      const Config& config, CollectPins collect_pins, MemoryFile index, MemoryFile pool,
      const SessionKnown& session_known, const std::function<void()>& on_progress = [] {});
  struct Reservation {
    std::uint64_t session_id;
    std::uint32_t entry;
  };
  // Returns the reservations that recover() found; once.
  std::vector<Reservation> take_recovered_reservations() {
    return std::exchange(recovered_reservations_, {});
  }

  ObjectIndex& index() { return *index_; }
  ExtentPool& pool() { return *pool_; }
  const StoreCounters& counters() const { return counters_; }
  StoreCounters& counters() { return counters_; }

  // ---- Reservations
  // kWait: no room now; ask again after progress. kAgain: a place is being cleared, one bounded
  // step in each turn; ask again at once. The store gives up a place that no request asks for.
  enum class Reserve { kOk, kWait, kAgain, kTooLarge, kNoMemory };
  // evict: the store may evict to make room.
  Reserve reserve(std::uint64_t session_id, std::uint64_t bytes, bool evict, std::uint32_t& entry) {
    return reserve(session_id, GrantedTo{}, bytes, evict, entry);
  }
  Reserve reserve(std::uint64_t session_id, GrantedTo to, std::uint64_t bytes, bool evict,
                  std::uint32_t& entry);
  // The request of a reservation, as the file tells. REQUIRES: the entry is reserved.
  GrantedTo granted_to(std::uint32_t entry) const;
  // Returns false if the entry is not a reservation of this session.
  bool abandon(std::uint64_t session_id, std::uint32_t entry);
  // Starts a later turn of the loop, in which the next reservation may clear a little more.
  void begin_turn(std::uint64_t turn) { clearing_.begin_turn(turn); }
  // True if objects wait for their readers or the pool grows: then room may appear soon.
  bool room_may_come() const { return limbo_.count() > 0 || pool_->growing(); }
  bool is_reserved_by(std::uint64_t session_id, std::uint32_t entry) const;
  // A new number for each reservation of the entry. REQUIRES: the entry is reserved.
  std::uint64_t generation_of(std::uint32_t entry) const;
  std::uint64_t reserved_length(std::uint32_t entry) const;
  PoolExtents extents(std::uint32_t entry) const { return extents_.of(entry); }
  // The entry's bytes as a single stretch. REQUIRES: the range lies within the entry.
  void read(std::uint32_t entry, std::uint64_t offset, std::span<std::byte> to) const {
    extents_.read(entry, offset, to);
  }
  void write(std::uint32_t entry, std::uint64_t offset, std::span<const std::byte> from) {
    extents_.write(entry, offset, from);
  }
  // Bytes of the entry's extents in the tail that a shrink removes.
  std::uint64_t tail_bytes(std::uint32_t entry) const { return extents_.tail_bytes(entry); }

  // ---- Objects
  // kExisted, kNoSpace: the session keeps the reservation. Every other failure frees it.
  enum class Put { kStored, kExisted, kBadReservation, kTooLarge, kNoSpace, kNoMemory };
  Put publish(std::uint64_t session_id, const PutOrder& order);
  // All or nothing: a failure frees every reservation of the list. A member whose key exists already
  // loses the reservation and gets the entry kNoEntry.
  Put publish_group(std::uint64_t session_id, std::vector<PutOrder>& orders, std::size_t& failed);
  // Serves a fetched object without publishing it: readers hold the bytes of this reservation by
  // these pins alone. No key leads to the object, and the last pin frees the bytes. Returns false
  // if the entry is not a reservation of this session.
  bool serve_unpublished(std::uint64_t session_id, std::uint32_t entry, std::uint64_t length,
                         std::uint64_t checksum, std::span<shm::Word64* const> pins);
  // The listener for objects from now on; null for none.
  void set_listener(StoreListener* listener) { live_.set_listener(listener); }
  // Takes objects that are evicted from now on; null for none.
  void set_demotion(Demotion* demotion) {
    live_.note_uses();
    evictor_.set_demotion(demotion);
  }
  // The store keeps as many bytes free ahead of demand, and a Demotion may hold as many.
  std::uint64_t headroom_bytes() const { return evictor_.headroom_bytes(); }
  // Evicts a few objects that the demotion takes. Their room comes later. False: none can be evicted so.
  bool evict_held() { return evictor_.evict_held(); }
  // REQUIRES: the Demotion holds the entry.
  void end_demotion(std::uint32_t entry) { limbo_.release(entry); }
  // Prefetches the memory that publishing this reservation under this key needs.
  void prefetch(std::string_view key, std::uint32_t entry) const;
  bool has(std::string_view key) const { return index_->find(key, index_->hash(key)).has_value(); }
  bool remove(std::string_view key) { return remove(key, Removal::kByClient); }
  enum class Removal { kByClient, kByCluster };
  bool remove(std::string_view key, Removal why);
  bool set_pin(std::string_view key, mc_pin pin, std::uint32_t ttl_s);
  void touch(std::uint32_t entry);
  // Drops an object with damaged bytes, if the entry still has this version.
  bool drop_corrupt(std::uint32_t entry, std::uint64_t version);
  // Up to `limit` objects from `cursor` on, by entry; the cursor becomes 0 at the end.
  std::vector<ListedObject> list(std::string_view prefix, std::size_t limit, std::uint64_t& cursor);
  // Evicts until this many bytes more fit the capacity. Returns false if the bytes exceed the
  // capacity, or if only hard-pinned objects are left.
  bool make_room(std::uint64_t bytes) { return evictor_.make_capacity(bytes); }
  // For an operator, evicts a bounded number of objects until this many bytes of the pool are free or
  // wait for their readers. kExhausted: no other object can be evicted.
  enum class Evicting { kDone, kMore, kExhausted };
  Evicting evict_towards(std::uint64_t wanted_bytes);
  std::uint64_t free_bytes() const;  // of the pool

  // ---- Time passes
  // After answers: work that no client has to wait for. Makes room ahead of demand.
  void catch_up() { evictor_.keep_headroom(shrinker_.active()); }
  // Frees the limbo entries without a pin.
  void reclaim() { limbo_.reclaim(); }
  // Expires soft pins, reclaims, continues a shrink by a step.
  void tick(std::uint64_t now_ns);
  // A smaller pool shrinks in steps. shrink_some() does one of these, see Shrinker::step().
  void resize(std::uint64_t pool_bytes);
  bool shrink_some() { return shrinker_.step(); }
  // Upper limit of live bytes. Objects beyond a lower capacity are evicted with the next ticks.
  void set_capacity(std::uint64_t bytes) { evictor_.set_capacity(bytes); }

  std::uint64_t live_bytes() const { return live_.bytes(); }
  std::uint64_t live_count() const { return live_.count(); }
  std::uint64_t limbo_count() const { return limbo_.count(); }
  std::uint64_t limbo_bytes() const { return limbo_.bytes() + limbo_.held_bytes(); }
  // Bytes that readers keep in the tail that a shrink removes.
  std::uint64_t limbo_tail_bytes() const { return limbo_.tail_bytes(); }
  std::uint64_t reserved_count() const { return reserved_count_; }
  std::uint64_t capacity_bytes() const { return evictor_.capacity_bytes(); }
  // By a clearing, and by a move under way.
  std::uint64_t held_bytes() const { return clearing_.held_bytes() + mover_.held_bytes(); }
  std::uint64_t bookkeeping_bytes() const;
  std::string_view policy_name() const { return live_.policy_name(); }
  const Departures& departures() const { return departures_; }

 private:
  ObjectStore(const Config& config, std::unique_ptr<ObjectIndex> index,
              std::unique_ptr<ExtentPool> pool, std::unique_ptr<EvictionPolicy> policy,
              CollectPins collect_pins);

  static Result<std::unique_ptr<EvictionPolicy>> make_policy(const Config& config);
  bool allocate(std::uint64_t bytes, bool evict, PoolExtents& extents);
  Put check_order(std::uint64_t session_id, const PutOrder& order) const;
  std::uint32_t unused_group();
  Put publish_new(std::uint64_t session_id, const PutOrder& order, std::uint64_t hash,
                  OptionalId existing);

  std::unique_ptr<ObjectIndex> index_;
  std::unique_ptr<ExtentPool> pool_;
  StoreCounters counters_;
  EntryExtents extents_;
  Limbo limbo_;
  LiveObjects live_;
  Departures departures_;
  Evictor evictor_;
  Mover mover_;
  Clearing clearing_;
  Shrinker shrinker_;
  std::uint64_t reserved_count_ = 0;
  std::vector<Reservation> recovered_reservations_;
};

}  // namespace mc::agent
