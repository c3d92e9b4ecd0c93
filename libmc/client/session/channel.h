// SPDX-License-Identifier: Apache-2.0
//
// One thread's path to the agent: rings, arguments, pin slots, touch notes, and a cache
//   of reservations that lets most puts proceed without a wait.
// Threads: one thread at a time: the owner, or the holder of a shared channel's lock. Only
//   take_all_reservation_cache() is for another thread. The owner does not write to reservations in
//   the cache. A reservation leaves the cache under a lock, for the owner or for the agent.
// Owns: a part of the session file.
// Trusts: no completion. Completions are matched with requests. Entries and offsets in completions
//   are checked against bounds before use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libmc/base/core_sharing.h"
#include "libmc/client/session/argument_arena.h"
#include "libmc/client/session/connection.h"
#include "libmc/client/session/owner_lock.h"
#include "shm/pins.h"
#include "shm/touch_ring.h"

namespace mc::client {

class Client;
class DeviceCopies;
class Staging;

// Names a reservation in requests: see shm/messages.h.
struct ReservationId {
  std::uint32_t entry = shm::kNoRefill;
  std::uint64_t generation = 0;
};

// Pool bytes that this client may write until it commits or abandons the reservation.
struct Reserved {
  ReservationId id;
  std::uint64_t length = 0;  // length of the reservation
  std::uint32_t extent_count = 0;
  shm::ExtentRecord extents[MC_MAX_EXTENTS];

  Reserved() {}  // extents stay uninitialised: most objects use one of sixteen
};

class Channel {
 public:
  // reads_per_check: one in so many reads compares the bytes with their checksum; 0: none.
  Channel(Client* client, std::uint32_t number, std::uint64_t reads_per_check);
  ~Channel();

  const Memory& memory() const { return *memory_; }
  const std::shared_ptr<Memory>& shared_memory() const { return memory_; }
  shm::Channel* shared() const { return shared_; }
  // Joins the client's current session and link, and opens the channel there. First takes in the
  // completions of the previous agent. On a resumed session, requests without a completion are sent
  // again. On a new session, such requests end with MC_SESSION_LOST.
  Status join(std::uint64_t deadline_ns);
  // The client generation that this channel has joined.
  std::uint64_t generation() const { return generation_; }

  // ---- Requests
  // The agent answers each request by the request's deadline. The grace time covers the delivery.
  static constexpr std::uint64_t kGraceNs = 500'000'000;
  // A ticket names a request until collect() or forget().
  struct Ticket {
    std::uint32_t slot = 0xffffffff;
    bool valid() const { return slot != 0xffffffff; }
  };
  // Takes room for the arguments and a request. Errors: MC_BUSY.
  Result<Ticket> prepare(std::uint32_t argument_bytes);
  unsigned char* arguments(Ticket ticket);
  // Wakes a sleeping agent before a small request is prepared. If the agent is awake, this costs
  // one read.
  void wake_ahead();
  void submit(Ticket ticket, shm::Op op, std::uint16_t flags, std::uint32_t item_count,
              std::uint64_t deadline_ns, std::uint64_t a = 0);
  // Frees the staging range when the agent is done with the request, whatever the outcome.
  void hold_staging(Ticket ticket, std::shared_ptr<Staging> staging, std::uint64_t offset);
  std::uint64_t request_id(Ticket ticket) const { return pending_[ticket.slot].request.request_id; }
  // Takes in completions that have arrived.
  void reap();
  bool done(Ticket ticket) const { return pending_[ticket.slot].done; }
  // Waits for the completion, across restarts of the agent. False: no answer came by the request's
  // deadline and the grace time.
  bool wait(Ticket ticket);
  bool wait_until(Ticket ticket, std::uint64_t until_ns);
  // As wait(), but a request without an answer is forgotten. Errors: MC_TIMEOUT.
  Status wait_or_forget(Ticket ticket);
  const shm::Completion& completion(Ticket ticket) const {
    return pending_[ticket.slot].completion;
  }
  // Result of one item of a completed put, abandon or remove.
  shm::ItemResult item_result(Ticket ticket, std::uint32_t item) const;
  void finish(Ticket ticket);  // call after the results were read
  void forget(Ticket ticket);  // gives up waiting for the request
  bool anything_in_flight() const { return in_flight_ > 0; }

  // ---- Reservations
  //
  // Guards the reservation cache and the identity of the cache's session. Each function below takes
  // the lock; a caller of several functions takes the lock once. Held for microseconds, and never
  // while the thread waits.
  class ReservationCacheLock {
   public:
    explicit ReservationCacheLock(Channel& channel);
    ~ReservationCacheLock() {
      if (--channel_.reservation_cache_locks_ == 0) channel_.reservation_cache_lock_.unlock();
    }
    ReservationCacheLock(const ReservationCacheLock&) = delete;
    ReservationCacheLock& operator=(const ReservationCacheLock&) = delete;

   private:
    Channel& channel_;
  };
  // Takes a reservation from the cache. False: the cache has none of that size.
  bool take_reservation_cache(std::uint64_t bytes, Reserved& reserved);
  // Adds a reservation to the cache. If the cache is full, the size that was unused for the longest
  // time goes back to the agent.
  void give_reservation_cache(const Reserved& reserved);
  // Takes the room that the answer to an item of a put leaves to the client. The refill goes into the
  // cache, and the reservation of a put that failed for want of room goes back to the agent.
  void take_room(const shm::ItemResult& result, const ReservationId& id, std::uint64_t length);
  // Whether the cache has room for one more reservation of this size, beside expected_bytes on
  // their way.
  bool reservation_cache_wants(std::uint64_t bytes, std::uint64_t expected_bytes = 0);
  // Takes all reservations out of the cache, for the agent. Takes nothing unless the channel has
  // joined this session. Any thread, one at a time.
  void take_all_reservation_cache(const Memory& memory, std::vector<ReservationId>& ids);
  // Sends at most MC_MAX_BATCH_ITEMS reservations back to the agent. Errors: MC_BUSY.
  Result<Ticket> send_back(std::span<const ReservationId> ids);
  // The same, without waiting for the answer. False: too many requests are in flight. The agent then
  // takes the reservations back when the session ends.
  bool give_back(std::span<const ReservationId> ids);
  bool give_back(const ReservationId& id) { return give_back({&id, 1}); }
  void take_granted(Ticket ticket, std::vector<Reserved>& granted);

  // ---- Reading
  shm::Word64* scratch_pin() { return &shared_->pins[0]; }
  shm::Word64* free_pin();  // null: all pins are in use
  std::uint32_t slot_of(const shm::Word64* pin) const {
    return static_cast<std::uint32_t>(pin - shared_->pins);
  }
  // Frees pin slots of a forgotten request when the answer has come. Until then the agent may write
  // to the slots.
  void free_pins_after(Ticket ticket, const std::uint32_t* slots, std::uint32_t count);
  void touch(std::uint32_t entry) { touches_.record(entry); }
  // A get or a view in the pool of this host, for the agent's metrics.
  void count_hit(std::uint64_t bytes) {
    shared_->header.hits.store_relaxed(++hits_);
    shared_->header.hit_bytes.store_relaxed(hit_bytes_ += bytes);
  }
  void count_miss() { shared_->header.misses.store_relaxed(++misses_); }
  // ---- Devices
  DeviceCopies& devices();
  void count_worker_copy(std::uint64_t bytes) {
    add(shared_->header.worker_bytes, bytes);
    shared_->header.own_copies.store_relaxed(0);
  }
  // why: of a copy that a worker should have done; kNone: of another one.
  void count_own_copy(std::uint64_t bytes, shm::OwnCopies why) {
    add(shared_->header.own_bytes, bytes);
    if (why == shm::OwnCopies::kNone) return;
    shared_->header.own_copies.store_relaxed(static_cast<std::uint32_t>(why));
  }

  // ---- Checks
  // Whether the next read that copies compares the bytes with their checksum.
  bool verifies_read() {
    if (--reads_until_check_ != 0) [[likely]] {
      return false;
    }
    reads_until_check_ = reads_per_check_;
    return true;
  }
  bool verifies_views() const { return reads_per_check_ == 1; }
  // Tells the agent that the bytes of this live object do not match their checksum.
  void report_damage(std::uint32_t entry);

  // Asks for a signal on the client's eventfd with each completion.
  void arm_eventfd();

 private:
  struct Pending {
    shm::Request request{};
    shm::Completion completion{};
    std::uint32_t argument_offset = 0;
    bool in_use = false;
    bool submitted = false;
    bool done = false;
    bool forgotten = false;
    std::shared_ptr<Staging> staging;
    std::vector<std::uint64_t> staging_offsets;
    std::vector<std::uint32_t> pin_slots;
  };
  static void add(shm::Word64& count, std::uint64_t more) {
    count.store_relaxed(count.load_relaxed() + more);
  }
  void publish(Pending& pending);
  void release(std::uint32_t slot);
  // Releases a request at the end of a block, also after an exception.
  class ReleaseAtEnd {
   public:
    ReleaseAtEnd(Channel& channel, std::uint32_t slot) : channel_(channel), slot_(slot) {}
    ~ReleaseAtEnd() { channel_.release(slot_); }
    ReleaseAtEnd(const ReleaseAtEnd&) = delete;
    ReleaseAtEnd& operator=(const ReleaseAtEnd&) = delete;

   private:
    Channel& channel_;
    std::uint32_t slot_;
  };
  void absorb(const shm::Completion& completion);
  void drop_answer(std::uint32_t slot);
  void keep_reservations(std::uint32_t slot);
  void repeat_unanswered();
  void give_refill(const shm::ItemResult& result, std::uint64_t length);
  void lose_all();
  bool agent_is_here() const;

  Client* client_;
  std::unique_ptr<DeviceCopies> devices_;  // null until the first copy
  std::uint32_t number_;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<AgentLink> link_;
  shm::Channel* shared_ = nullptr;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
  shm::TouchWriter touches_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t hit_bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::array<Pending, shm::kRingSlots> pending_;
  std::uint32_t next_slot_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint64_t next_request_ = 1;
  bool rang_ = false;  // the last request found the agent asleep
  CoreSharing core_;
  ArgumentArena arena_;
  std::uint32_t next_pin_ = 1;
  std::uint64_t reads_per_check_;  // 0: never
  std::uint64_t reads_until_check_;
  struct CachedReservation {
    ReservationId id;
    std::uint64_t offset_bytes;  // of the only extent
  };
  struct ReservationCacheOf {
    std::uint64_t length;
    std::uint64_t used;  // value of reservation_cache_uses_ at the last use
    std::vector<CachedReservation> items;
  };
  // The visitor's side of the same lock, for take_all_reservation_cache(). One visitor at a time.
  class ReservationCacheVisit {
   public:
    explicit ReservationCacheVisit(OwnerLock& lock);
    ~ReservationCacheVisit() { lock_.end_visit(); }
    ReservationCacheVisit(const ReservationCacheVisit&) = delete;
    ReservationCacheVisit& operator=(const ReservationCacheVisit&) = delete;

   private:
    OwnerLock& lock_;
  };
  ReservationCacheOf* reservation_cache_of(std::uint64_t bytes);
  void put_in_reservation_cache(std::uint64_t length, CachedReservation item);
  bool shrink_reservation_cache();
  OwnerLock reservation_cache_lock_;
  unsigned reservation_cache_locks_ = 0;               // of the owner, one in the other
  std::vector<ReservationCacheOf> reservation_cache_;  // few sizes are in use
  std::uint64_t reservation_cache_bytes_ = 0;
  std::uint64_t reservation_cache_uses_ = 0;
};

}  // namespace mc::client
