// SPDX-License-Identifier: Apache-2.0
//
// What it is: one thread's way to the agent: rings, arguments, pin slots, touch notes, and a reservation cache
// of
//   reservations that makes puts free of waiting.
// Threads: one at a time: the thread that owns it, or whoever holds the lock of a shared one. Only
//   take_all_stock() is for another thread: what is in reservation cache is written by nobody, and leaves it
//   under a lock, for its owner or for the agent.
// Owns: its part of the session file. Trusts: completions are matched with requests; entries and
// offsets
//   in them are bounded before use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "libmc/base/core_sharing.h"
#include "libmc/client/session/argument_arena.h"
#include "libmc/client/session/connection.h"
#include "libmc/client/session/owner_lock.h"
#include "shm/pins.h"
#include "shm/touch_ring.h"

namespace mc::client {

class Client;
class Staging;

// Bytes of the pool this client may write until it commits or abandons them.
struct Reserved {
  std::uint32_t entry = shm::kNoRefill;
  std::uint64_t length = 0;  // as reserved
  std::uint32_t extent_count = 0;
  shm::ExtentRecord extents[MC_MAX_EXTENTS];

  Reserved() {}  // extents are set when counted: most have one of sixteen
};

class Channel {
 public:
  Channel(Client* client, std::uint32_t number) : client_(client), number_(number) {}

  const Memory& memory() const { return *memory_; }
  shm::Channel* shared() const { return shared_; }
  // Follows the client to its current session and link; opens the channel there. Requests in flight
  // are asked again on a resumed session, and end with MC_SESSION_LOST on a new one.
  Status join(std::uint64_t deadline_ns);
  // The client's generation this channel has joined.
  std::uint64_t generation() const { return generation_; }

  // ---- Requests
  // A ticket names a request until collect() or forget().
  struct Ticket {
    std::uint32_t slot = 0xffffffff;
    bool valid() const { return slot != 0xffffffff; }
  };
  // Room for arguments and a request. Errors: MC_BUSY.
  Result<Ticket> prepare(std::uint32_t argument_bytes);
  unsigned char* arguments(Ticket ticket);
  // Before a small request is made: an agent that sleeps wakes meanwhile. Costs one read otherwise.
  void wake_ahead();
  void submit(Ticket ticket, shm::Op op, std::uint16_t flags, std::uint32_t item_count,
              std::uint64_t deadline_ns, std::uint64_t a = 0);
  // Staging to free when the agent is through with the request, however that ends.
  void hold_staging(Ticket ticket, std::shared_ptr<Staging> staging, std::uint64_t offset);
  std::uint64_t request_id(Ticket ticket) const { return pending_[ticket.slot].request.request_id; }
  // Takes in the completions that have come.
  void reap();
  bool done(Ticket ticket) const { return pending_[ticket.slot].done; }
  // Waits, across restarts of the agent. False: the deadline passed first.
  bool wait(Ticket ticket, std::uint64_t deadline_ns);
  const shm::Completion& completion(Ticket ticket) const {
    return pending_[ticket.slot].completion;
  }
  // Result of one item of a completed put, abandon, remove.
  shm::ItemResult item_result(Ticket ticket, std::uint32_t item) const;
  void finish(Ticket ticket);  // after the results were read
  void forget(Ticket ticket);  // not waited for any longer
  bool anything_in_flight() const { return in_flight_ > 0; }

  // ---- Reservations
  // From the reservation cache. False: none of that size.
  bool take_reservation_cache(std::uint64_t bytes, Reserved& reserved);
  // For the reservation cache. When that is full, what has gone unused the longest goes back to the agent.
  void give_reservation_cache(const Reserved& reserved);
  // The same for a reservation of one extent, as an item's result brings it. Nonsense is ignored.
  void give_refill(const shm::ItemResult& result, std::uint64_t length);
  // Whether there is room for one more of this size beside others that are on their way.
  bool reservation_cache_wants(std::uint64_t bytes, std::uint64_t expected_bytes = 0);
  // Takes everything out of the reservation cache, for the agent; nothing unless the channel has joined this
  // session. Any thread, one at a time.
  void take_all_reservation_cache(const Memory& memory, std::vector<std::uint32_t>& entries);
  // False: too much is in flight; the agent takes them back when the session ends.
  bool give_back(const std::uint32_t* entries, std::uint32_t count);
  void take_granted(Ticket ticket, std::vector<Reserved>& granted);

  // ---- Reading
  shm::Word64* scratch_pin() { return &shared_->pins[0]; }
  shm::Word64* free_pin();  // null: all in use
  std::uint32_t slot_of(const shm::Word64* pin) const {
    return static_cast<std::uint32_t>(pin - shared_->pins);
  }
  // Slots that a forgotten request's answer may still write: free when that has come.
  void free_pins_after(Ticket ticket, const std::uint32_t* slots, std::uint32_t count);
  void touch(std::uint32_t entry) { touches_.record(entry); }

  // Notes that completions shall signal the client's eventfd.
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
  void publish(Pending& pending);
  void release(std::uint32_t slot);
  void absorb(const shm::Completion& completion);
  void lose_all();
  bool agent_is_here() const;

  Client* client_;
  std::uint32_t number_;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Link> link_;
  shm::Channel* shared_ = nullptr;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
  shm::TouchWriter touches_;
  std::uint64_t generation_ = 0;
  std::array<Pending, shm::kRingSlots> pending_;
  std::uint32_t next_slot_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint64_t next_request_ = 1;
  bool rang_ = false;  // the last request found the agent asleep
  CoreSharing core_;
  ArgumentArena arena_;
  std::uint32_t next_pin_ = 1;
  struct CachedReservation {
    std::uint32_t entry;
    std::uint64_t offset_bytes;  // of the only extent
  };
  struct ReservationCacheOf {
    std::uint64_t length;
    std::uint64_t used;  // when it last served, by stock_uses_
    std::vector<CachedReservation> items;
  };
  // Held for a few instructions. What it guards: the reservation cache, and which session that is of.
  class ReservationCacheLock {
   public:
    explicit ReservationCacheLock(OwnerLock& lock);
    ~ReservationCacheLock() { lock_.unlock(); }
    ReservationCacheLock(const ReservationCacheLock&) = delete;
    ReservationCacheLock& operator=(const ReservationCacheLock&) = delete;

   private:
    OwnerLock& lock_;
  };
  // The same for take_all_stock(). One at a time.
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
  std::vector<ReservationCacheOf> reservation_cache_;  // few sizes are in use at once
  std::uint64_t reservation_cache_bytes_ = 0;
  std::uint64_t reservation_cache_uses_ = 0;
};

}  // namespace mc::client
