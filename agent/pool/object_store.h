// SPDX-License-Identifier: Apache-2.0
//
// What it is: one namespace's pool: what is reserved, stored, evicted and waiting in limbo.
//
//   reserve ──► kReserved ──publish──► kLive ──evict, remove, replace, move──► kLimbo ──reclaim──►
//   free
//
//   Every change of an object's state is one atomic store of its entry's version word; what the
//   agent knows beside the entries (allocator, policy, groups) is rebuilt from them after a crash.
// Threads: the agent's loop. Readers in other processes read the index and the pool meanwhile.
// Owns: index, pool, policy. Trusts: sessions are checked by the caller; lengths, entries and keys
// that
//   come from a client are checked here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/pool/extent_pool.h"
#include "agent/pool/object_index.h"
#include "agent/pool/optional_id.h"
#include "agent/pool/policy/policy.h"
#include "agent/pool/store_listener.h"

namespace mc::agent {

struct StoreCounters {
  std::uint64_t puts = 0, put_bytes = 0, put_existing = 0;
  std::uint64_t evictions = 0, evicted_bytes = 0, removes = 0, moves = 0;
  std::uint64_t no_space = 0, touches = 0;
  std::uint64_t recovered = 0, set_aside = 0;  // at the last start
  std::uint64_t verified = 0, corrupt = 0;     // by the scrubber
};

// What a client wants stored.
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

struct ListedObject {
  std::string key;
  std::uint64_t length = 0, version = 0;
  std::uint32_t extent_count = 0, group = 0;
  mc_pin pin = MC_PIN_NONE;
};

// The request whose answer names a reservation. It stands in the file: should the answer be lost
// with the agent, the client asks the same again, and what it never heard of can go.
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
    std::optional<std::uint64_t> hash_seed;  // of a cluster's namespace; else a random one
  };
  // Appends every pin_value() in the pin slots of every session of this namespace.
  using CollectPins = std::function<void(std::vector<std::uint64_t>&)>;
  // Whether the session that made a reservation is still there, at recovery.
  using SessionKnown = std::function<bool(std::uint64_t session_id)>;

  static Result<std::unique_ptr<ObjectStore>> create(const Config& config,
                                                     CollectPins collect_pins);
  // Takes over an earlier agent's files. What is damaged is set aside and counted; the rest is
  // served. Errors: MC_CORRUPT when nothing in them can be trusted.
  static Result<std::unique_ptr<ObjectStore>> recover(const Config& config,
                                                      CollectPins collect_pins, MemoryFile index,
                                                      MemoryFile pool,
                                                      const SessionKnown& session_known);

  ObjectIndex& index() { return *index_; }
  ExtentPool& pool() { return *pool_; }
  const StoreCounters& counters() const { return counters_; }
  StoreCounters& counters() { return counters_; }

  // ---- Reservations
  enum class Reserve { kOk, kWait, kAgain, kTooLarge, kNoMemory };
  // kWait: no room now; ask again after progress. evict: may make room. kAgain: it is being made, a
  // bounded step with every turn; ask again at once. One that is asked for no longer is given up.
  Reserve reserve(std::uint64_t session_id, std::uint64_t bytes, bool evict, std::uint32_t& entry) {
    return reserve(session_id, GrantedTo{}, bytes, evict, entry);
  }
  Reserve reserve(std::uint64_t session_id, GrantedTo to, std::uint64_t bytes, bool evict,
                  std::uint32_t& entry);
  // To whom a reservation of this session was granted, as far as the file tells.
  GrantedTo granted_to(std::uint32_t entry) const;
  // False: not a reservation of this session.
  bool abandon(std::uint64_t session_id, std::uint32_t entry);
  // The reservation that asks next in a later turn of the loop may clear a little more.
  void begin_turn(std::uint64_t turn) { turn_ = turn; }
  // What leaves waits for its readers, or the pool grows: who found no room may find some soon.
  bool room_may_come() const { return limbo_count() > 0 || pool_->growing(); }
  bool is_reserved_by(std::uint64_t session_id, std::uint32_t entry) const;
  std::uint64_t reserved_length(std::uint32_t entry) const;
  PoolExtents extents(std::uint32_t entry) const;
  // Bytes of an entry's extents, as one stretch. REQUIRES: they lie within.
  void read(std::uint32_t entry, std::uint64_t offset, std::span<std::byte> to) const;
  void write(std::uint32_t entry, std::uint64_t offset, std::span<const std::byte> from);
  // Bytes of an entry's extents that lie, wholly or not, in a tail that is to go.
  std::uint64_t tail_bytes(std::uint32_t entry) const;
  std::vector<std::uint32_t> reservations_of(std::uint64_t session_id) const;

  // ---- Objects
  enum class Put { kStored, kExisted, kBadReservation, kTooLarge, kNoSpace, kNoMemory };
  // kExisted and kNoSpace: the reservation is still the session's. Every other failure gives it
  // back.
  Put publish(std::uint64_t session_id, const PutOrder& order);
  // All or nothing: on a failure every reservation of the list is given back.
  Put publish_group(std::uint64_t session_id, std::vector<PutOrder>& orders, std::size_t& failed);
  // Hands the bytes in a reservation of this session to readers who hold them by these pins alone:
  // no key leads there, and they are freed with the last pin. False: not its reservation.
  bool serve_unpublished(std::uint64_t session_id, std::uint32_t entry, std::uint64_t length,
                         std::uint64_t checksum, std::span<shm::Word64* const> pins);
  // Whoever is to hear of objects from now on; null for nobody.
  void set_listener(StoreListener* listener) { listener_ = listener; }
  // Starts loading what publishing this reservation under this key will need.
  void prefetch(std::string_view key, std::uint32_t entry) const;
  bool remove(std::string_view key);
  bool set_pin(std::string_view key, mc_pin pin, std::uint32_t ttl_s);
  void touch(std::uint32_t entry);
  // Drops an object whose bytes are not what they were, if it is still that version.
  bool drop_corrupt(std::uint32_t entry, std::uint64_t version);
  // Up to limit objects from cursor on, by entry; cursor becomes 0 at the end.
  std::vector<ListedObject> list(std::string_view prefix, std::size_t limit, std::uint64_t& cursor);

  // Evicts until this many bytes more keep the pool within its capacity. False: they never will, or
  // all that is left is hard pinned.
  bool make_room(std::uint64_t bytes);

  // ---- Time passes
  void catch_up();                  // after answers: what nobody has to wait for; makes room ahead
  void reclaim();                   // frees what is in limbo and not pinned
  void tick(std::uint64_t now_ns);  // expires soft pins, reclaims, continues a shrink
  void resize(std::uint64_t pool_bytes);

  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t live_count() const { return policy_->resident_count() + pending_.size(); }
  std::uint64_t limbo_count() const { return limbo_.size() + cleared_.size(); }
  // What readers keep of a tail that is to go.
  std::uint64_t limbo_tail_bytes() const;
  std::uint64_t limbo_bytes() const { return limbo_bytes_; }
  std::uint64_t reserved_count() const { return reserved_count_; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t held_bytes() const { return clearing_.held.bytes(); }  // by a clearing
  std::uint64_t bookkeeping_bytes() const;
  std::string_view policy_name() const { return policy_->name(); }

 private:
  friend class Recovery;
  ObjectStore(const Config& config, CollectPins collect_pins);

  void take_pool(std::unique_ptr<ExtentPool> pool);
  bool allocate(std::uint64_t bytes, bool evict, PoolExtents& extents);
  bool make_capacity(std::string_view key, std::uint64_t hash, std::uint64_t length);
  bool evict_some(std::uint64_t bytes);
  std::uint64_t evict_batch(std::uint64_t most);
  void evict_one(std::uint32_t entry);
  void to_limbo(std::uint32_t entry);
  void check_limbo();
  void free_cleared(std::uint64_t most);
  void prefetch_frees() const;
  void forget_group_member(std::uint32_t entry);
  void free_entry(std::uint32_t entry);
  void remember_nodes(std::uint32_t entry, const PoolExtents& extents);
  bool write_extents(std::uint32_t entry, const PoolExtents& extents, std::uint64_t length);
  Put publish_new(std::uint64_t session_id, const PutOrder& order, std::uint64_t hash,
                  OptionalId existing);
  Put check_order(std::uint64_t session_id, const PutOrder& order) const;
  void admit(std::uint32_t entry, std::uint64_t hash, const PutOrder& order);
  void admit_pending();
  EvictionPolicy& policy() {
    if (!pending_.empty()) admit_pending();
    return *policy_;
  }
  void expire_soft_pins(std::uint64_t now_ns);
  void continue_shrink();
  bool move_away(std::uint32_t entry);

  // clearing.cc: room at one place, for what is large among small objects.
  bool clear_place(std::uint64_t bytes, PoolExtents& extents);
  bool clears_for(std::uint64_t bytes) const;
  void clear_step();
  void free_missing(std::uint64_t missing_bytes);
  void empty_beside();
  bool absorb_beside();
  bool begin_piece();
  void hop_over_obstacle();
  void give_up_clearing(bool until_tick);
  void look_at_pins();
  bool can_leave(std::uint32_t entry) const;
  bool make_leave(std::uint32_t entry);
  struct Outlook {
    std::uint64_t bytes = 0;
    std::uint64_t used_bytes = 0;
    // More than 1 where nothing can leave.
    double used_share() const {
      return bytes == 0 ? 2.0 : static_cast<double>(used_bytes) / static_cast<double>(bytes);
    }
  };
  Outlook look_beside(const PoolExtent& piece, ExtentPool::Side side) const;

  std::unique_ptr<ObjectIndex> index_;
  std::unique_ptr<ExtentPool> pool_;
  std::unique_ptr<EvictionPolicy> policy_;
  CollectPins collect_pins_;
  StoreListener* listener_ = nullptr;
  std::uint64_t capacity_option_ = 0;
  std::uint64_t capacity_bytes_ = 0;
  StoreCounters counters_;

  struct Pending {
    std::uint32_t entry;
    std::uint64_t parent_hash, hash, length;
    PinLevel pin;
  };
  std::vector<Pending> pending_;  // live, and the policy has not heard of them yet
  std::vector<BlockId> nodes_;    // by entry: the allocator's name of its only extent
  std::unordered_map<std::uint32_t, std::vector<BlockId>> many_nodes_;  // of entries with several
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> soft_pins_;  // entry -> expiry, steady seconds
  std::vector<std::uint32_t> limbo_;                            // readers may have them pinned
  std::vector<std::uint32_t> cleared_;  // no reader has, or ever will: only to be freed
  std::uint64_t limbo_bytes_ = 0;       // of both
  std::uint64_t unchecked_bytes_ = 0;   // put in limbo since the pins were last looked at
  std::uint64_t granted_since_ = 0;     // reservations since catch_up() last looked
  std::uint64_t live_bytes_ = 0;
  std::uint64_t reserved_count_ = 0;
  std::uint64_t next_expiry_ns_ = 0;
  bool shrinking_ = false;
  std::uint64_t shrink_cursor_ = 0;

  // A place being cleared. What it holds is taken from the allocator and belongs to no entry, so
  // that a crash leaves it free.
  struct Clearing {
    std::uint64_t wanted_bytes = 0;   // 0: none; whole granules
    PoolExtents held;                 // the last one grows
    std::vector<std::uint64_t> pins;  // of readers, when the piece was begun; sorted
    unsigned stalled = 0;             // steps in a row that found nothing to do
    unsigned hops = 0;                // obstacles that were left behind
    bool asked = false;               // since the last tick
  };
  Clearing clearing_;
  bool clearing_useless_ = false;  // until the next tick
  std::uint64_t turn_ = 1;
  std::uint64_t cleared_in_turn_ = 0;  // the last step
};

}  // namespace mc::agent
