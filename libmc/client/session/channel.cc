// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/session/channel.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "libmc/base/clock.h"
#include "libmc/base/copy.h"
#include "libmc/base/failpoint.h"
#include "libmc/client/client.h"
#include "libmc/client/device/device_copies.h"
#include "shm/doorbell.h"

namespace mc::client {

namespace {

// A caller spins this long for a completion before sleeping: about the time to wake the agent.
constexpr std::uint64_t kSpinNs = 20000;
constexpr unsigned kSpinsBetweenClocks = 256;
constexpr unsigned kSpinsBetweenLooks = 32;
// A sleeping caller checks the connection at this interval.
constexpr std::uint64_t kSleepSliceNs = 20000000;
constexpr std::uint32_t kUncachedAtOnce = 64;

}  // namespace

Channel::Channel(Client* client, std::uint32_t number, std::uint64_t reads_per_check)
    : client_(client),
      number_(number),
      reads_per_check_(reads_per_check),
      reads_until_check_(reads_per_check) {}

Channel::~Channel() = default;

DeviceCopies& Channel::devices() {
  if (!devices_) devices_ = std::make_unique<DeviceCopies>(*client_, *this);
  return *devices_;
}

// ---- Sessions -----------------------------------------------------------------------------------

Status Channel::join(std::uint64_t deadline_ns) {
  const Client::Current current = client_->current();
  if (current.generation == generation_) return {};
  if (Status status = client_->open_channel(*current.connection.link, number_, deadline_ns);
      !status.ok()) {
    return status;
  }
  // A repeated request that was answered already would have an effect twice.
  if (shared_ != nullptr) reap();
  const bool same_session = memory_ == current.connection.memory;
  if (!same_session) {
    // Both change under the lock: entry numbers of the old session mean other reservations in the
    // new one.
    const ReservationCacheLock lock(*this);
    reservation_cache_.clear();
    reservation_cache_bytes_ = 0;
    memory_ = current.connection.memory;
  }
  link_ = current.connection.link;
  shared_ = memory_->channel(number_);
  requests_ = shm::RingProducer(shared_->requests, link_->epoch);
  completions_ = shm::RingConsumer(shared_->completions, link_->epoch);
  touches_ = shm::TouchWriter(shared_);
  hits_ = shared_->header.hits.load_relaxed();
  misses_ = shared_->header.misses.load_relaxed();
  hit_bytes_ = shared_->header.hit_bytes.load_relaxed();
  generation_ = current.generation;
  if (!same_session) {
    // An answer that nobody has read yet is lost, too: its reservations and results are in the old
    // session.
    for (Pending& pending : pending_) pending.done = false;
    lose_all();
    return {};
  }
  repeat_unanswered();
  return {};
}

// In the order of the first time: of two puts of a key, the later one stands.
void Channel::repeat_unanswered() {
  std::array<Pending*, shm::kRingSlots> unanswered;
  std::size_t count = 0;
  for (Pending& pending : pending_) {
    if (pending.in_use && pending.submitted && !pending.done) unanswered[count++] = &pending;
  }
  std::sort(unanswered.begin(), unanswered.begin() + count,
            [](const Pending* one, const Pending* other) {
              return one->request.request_id < other->request.request_id;
            });
  for (std::size_t i = 0; i < count; ++i) publish(*unanswered[i]);
}

// Requests of a lost session get no answer, and cached reservations are gone.
void Channel::lose_all() {
  {
    const ReservationCacheLock lock(*this);
    reservation_cache_.clear();
    reservation_cache_bytes_ = 0;
  }
  next_pin_ = 1;
  for (std::uint32_t slot = 0; slot < pending_.size(); ++slot) {
    Pending& pending = pending_[slot];
    if (!pending.in_use || !pending.submitted || pending.done) continue;
    pending.completion = shm::Completion{};
    pending.completion.status = MC_SESSION_LOST;
    pending.done = true;
    if (pending.forgotten) release(slot);
  }
}

// ---- Requests -----------------------------------------------------------------------------------

[[gnu::hot]] Result<Channel::Ticket> Channel::prepare(std::uint32_t argument_bytes) {
  reap();
  for (std::uint32_t tries = 0; tries < pending_.size(); ++tries) {
    const std::uint32_t slot = next_slot_++ % static_cast<std::uint32_t>(pending_.size());
    Pending& pending = pending_[slot];
    if (pending.in_use) continue;
    const auto offset = arena_.allocate(std::max(argument_bytes, 8u));
    if (!offset) break;
    pending.request = shm::Request{};
    pending.submitted = pending.done = pending.forgotten = false;
    pending.in_use = true;
    pending.argument_offset = *offset;
    pending.request.argument_offset = *offset;
    pending.request.argument_bytes = argument_bytes;
    pending.request.request_id = (next_request_++ << 8) | slot;
    ++in_flight_;
    return Ticket{slot};
  }
  return fail(MC_BUSY, "too many requests are in flight on this channel; wait for some");
}

[[gnu::hot]] unsigned char* Channel::arguments(Ticket ticket) {
  return shared_->arguments + pending_[ticket.slot].argument_offset;
}

[[gnu::hot]] void Channel::submit(Ticket ticket, shm::Op op, std::uint16_t flags,
                                  std::uint32_t item_count, std::uint64_t deadline_ns,
                                  std::uint64_t a) {
  Pending& pending = pending_[ticket.slot];
  pending.request.op = static_cast<std::uint16_t>(op);
  pending.request.flags = flags;
  pending.request.item_count = item_count;
  pending.request.deadline_ns = deadline_ns;
  pending.request.a = a;
  pending.submitted = true;
  MC_FAILPOINT("client.before_submit");
  publish(pending);
  MC_FAILPOINT("client.after_submit");
}

[[gnu::hot]] void Channel::wake_ahead() {
  if (shm::claim_bell(shared_->header)) signal_eventfd(link_->agent_event.get());
}

[[gnu::hot]] void Channel::publish(Pending& pending) {
  pending.request.touch_head = touches_.head_for_request();
  order_copies();  // the agent may read the pool bytes of the request's items from here on
  requests_.publish(shm::to_words(pending.request));
  rang_ = shm::agent_needs_bell(shared_->header);
  if (rang_) signal_eventfd(link_->agent_event.get());
}

[[gnu::hot]] void Channel::reap() {
  shm::RecordWords words;
  while (completions_.poll(words)) {
    if (const auto completion = shm::decode_completion(words)) absorb(*completion);
  }
}

[[gnu::hot]] void Channel::absorb(const shm::Completion& completion) {
  const auto slot = static_cast<std::uint32_t>(completion.request_id & 0xff);
  Pending& pending = pending_[slot];
  if (!pending.in_use || pending.done || pending.request.request_id != completion.request_id) {
    return;  // a completion of a request that was sent twice, or not of this channel
  }
  MC_FAILPOINT("client.completion_seen");
  pending.completion = completion;
  pending.done = true;
  if (pending.forgotten) drop_answer(slot);
}

// Takes the answer to a forgotten request.
void Channel::drop_answer(std::uint32_t slot) {
  try {
    keep_reservations(slot);
  } catch (const std::bad_alloc&) {
    // The rest stays with the session, whose end returns the rest.
  }
}

// Reservations in the answer serve later puts.
void Channel::keep_reservations(std::uint32_t slot) {
  const Ticket ticket{slot};
  const shm::Request request = pending_[slot].request;
  if (request.op == static_cast<std::uint16_t>(shm::Op::kReserve)) {
    std::vector<Reserved> granted;
    take_granted(ticket, granted);
    for (const Reserved& reserved : granted) give_reservation_cache(reserved);
    return;
  }
  const ReleaseAtEnd at_end(*this, slot);
  // The agent keeps no reservation of a group.
  const bool group = (request.flags & shm::kFlagGroup) != 0;
  if (request.op != static_cast<std::uint16_t>(shm::Op::kPut) || group) return;
  shm::ArgumentReader reader(shared_->arguments, request);
  shm::ArgumentReader::Item item;
  for (std::uint32_t i = 0; i < request.item_count && reader.next(item); ++i) {
    take_room(item_result(ticket, i), {item.fields.entry, item.fields.generation},
              shm::reservation_bytes(item.fields.length));
  }
}

[[gnu::hot]] bool Channel::wait(Ticket ticket) {
  return wait_until(ticket, pending_[ticket.slot].request.deadline_ns + kGraceNs);
}

Status Channel::wait_or_forget(Ticket ticket) {
  if (wait(ticket)) return {};
  forget(ticket);
  return {MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"};
}

[[gnu::hot]] bool Channel::wait_until(Ticket ticket, std::uint64_t until_ns) {
  const Pending& pending = pending_[ticket.slot];
  // Most answers arrive early, so the clock is not read before the answer is late.
  std::uint64_t spin_until_ns = 0;
  // A woken agent may need this core: then sleep at once.
  for (unsigned spins = rang_ ? kSpinsBetweenClocks : 1;; ++spins) {
    reap();
    if (pending.done) return true;
    const bool in_its_way = spins % kSpinsBetweenLooks == 1 && agent_is_here();
    if (!in_its_way && spins % kSpinsBetweenClocks != 0) {
      cpu_relax();
      continue;
    }
    const std::uint64_t now = now_ns();
    if (client_->generation() != generation_) {
      if (!client_->lost().ok()) {
        lose_all();
        return pending.done;
      }
      // A restarting agent is waited for like a slow one.
      if (!join(until_ns).ok() && now >= until_ns) return false;
      continue;
    }
    if (now >= until_ns) return false;
    if (spin_until_ns == 0) spin_until_ns = rang_ ? now : now + kSpinNs;
    // The agent may be waiting for this core.
    if (in_its_way && memory_->index.header().agent_serves_many.load_relaxed() != 0) {
      core_.leave_if_met_often(now);
    }
    if (now < spin_until_ns && core_.yield()) continue;
    shm::announce_client_sleep(shared_->header, shm::kClientInFutex);
    reap();
    if (!pending.done) {
      shm::wait_for_agent(shared_->header, std::min(kSleepSliceNs, until_ns - now));
    }
    shm::announce_client_awake(shared_->header);
  }
}

// The agent last ran on this core, so the agent is not running now. Spinning would delay the
// answer.
[[gnu::hot]] bool Channel::agent_is_here() const {
  return memory_->index.header().agent_core.load_relaxed() == CoreSharing::here();
}

[[gnu::hot]] shm::ItemResult Channel::item_result(Ticket ticket, std::uint32_t item) const {
  const Pending& pending = pending_[ticket.slot];
  const shm::Completion& completion = pending.completion;
  const shm::ItemResult nothing{completion.status != MC_OK ? completion.status : MC_INTERNAL,
                                shm::kNoRefill, 0, 0};
  if (item >= completion.item_count) return nothing;
  if (pending.request.item_count == 1) return completion.first;
  shm::ItemResult result;
  std::memcpy(&result, shared_->arguments + pending.argument_offset + item * sizeof result,
              sizeof result);
  result.status = shm::known_status(result.status);
  return result;
}

[[gnu::hot]] void Channel::finish(Ticket ticket) { release(ticket.slot); }

void Channel::forget(Ticket ticket) {
  Pending& pending = pending_[ticket.slot];
  if (!pending.submitted) {
    release(ticket.slot);
  } else if (pending.done) {
    drop_answer(ticket.slot);
  } else {
    pending.forgotten = true;
  }
}

void Channel::hold_staging(Ticket ticket, std::shared_ptr<Staging> staging, std::uint64_t offset) {
  Pending& pending = pending_[ticket.slot];
  pending.staging = std::move(staging);
  pending.staging_offsets.push_back(offset);
}

[[gnu::hot]] void Channel::release(std::uint32_t slot) {
  Pending& pending = pending_[slot];
  arena_.release(pending.argument_offset);
  for (const std::uint64_t offset : pending.staging_offsets) pending.staging->free(offset);
  pending.staging_offsets.clear();
  pending.staging.reset();
  for (const std::uint32_t pin : pending.pin_slots) shm::clear_pin(shared_->pins[pin]);
  pending.pin_slots.clear();
  pending.in_use = false;
  --in_flight_;
}

// ---- Reservations -------------------------------------------------------------------------------

Channel::ReservationCacheLock::ReservationCacheLock(Channel& channel) : channel_(channel) {
  if (channel_.reservation_cache_locks_++ > 0) return;
  while (!channel_.reservation_cache_lock_.try_lock()) ::sched_yield();
}

Channel::ReservationCacheVisit::ReservationCacheVisit(OwnerLock& lock) : lock_(lock) {
  lock_.want();
  while (!lock_.owner_is_out()) ::sched_yield();
}

// REQUIRES (all functions that read the reservation cache): the caller holds the cache's lock.
[[gnu::hot]] Channel::ReservationCacheOf* Channel::reservation_cache_of(std::uint64_t bytes) {
  for (ReservationCacheOf& reservation_cache : reservation_cache_) {
    if (reservation_cache.length == bytes) return &reservation_cache;
  }
  return nullptr;
}

[[gnu::hot]] void Channel::put_in_reservation_cache(std::uint64_t length, CachedReservation item) {
  ReservationCacheOf* reservation_cache = reservation_cache_of(length);
  if (reservation_cache == nullptr) {
    std::erase_if(reservation_cache_,
                  [](const ReservationCacheOf& other) { return other.items.empty(); });
    reservation_cache_.push_back({length, ++reservation_cache_uses_, {}});
    reservation_cache = &reservation_cache_.back();
  }
  reservation_cache->items.push_back(item);
  reservation_cache_bytes_ += length;
}

[[gnu::hot]] bool Channel::take_reservation_cache(std::uint64_t bytes, Reserved& reserved) {
  const ReservationCacheLock lock(*this);
  ReservationCacheOf* const reservation_cache = reservation_cache_of(bytes);
  if (reservation_cache == nullptr || reservation_cache->items.empty()) return false;
  reserved.id = reservation_cache->items.back().id;
  reserved.length = bytes;
  reserved.extent_count = 1;
  reserved.extents[0] = {reservation_cache->items.back().offset_bytes, bytes};
  reservation_cache->items.pop_back();
  reservation_cache->used = ++reservation_cache_uses_;
  reservation_cache_bytes_ -= bytes;
  return true;
}

void Channel::take_all_reservation_cache(const Memory& memory, std::vector<ReservationId>& ids) {
  const ReservationCacheVisit visit(reservation_cache_lock_);
  if (memory_.get() != &memory) return;
  for (const ReservationCacheOf& reservation_cache : reservation_cache_) {
    for (const CachedReservation& item : reservation_cache.items) ids.push_back(item.id);
  }
  reservation_cache_.clear();
  reservation_cache_bytes_ = 0;
}

[[gnu::hot]] bool Channel::reservation_cache_wants(std::uint64_t bytes,
                                                   std::uint64_t expected_bytes) {
  const ReservationCacheLock lock(*this);
  const ReservationCacheOf* const reservation_cache = reservation_cache_of(bytes);
  const std::uint64_t held =
      reservation_cache == nullptr ? 0 : reservation_cache->items.size() * bytes;
  return held + expected_bytes + bytes <= memory_->reservation_cache_bytes;
}

[[gnu::hot]] void Channel::give_reservation_cache(const Reserved& reserved) {
  if (reserved.extent_count != 1 || reserved.length > memory_->reservation_cache_bytes) {
    give_back(reserved.id);
    return;
  }
  bool full = false;
  {
    const ReservationCacheLock lock(*this);
    put_in_reservation_cache(reserved.length, {reserved.id, reserved.extents[0].offset_bytes});
    full = reservation_cache_bytes_ > memory_->reservation_cache_bytes;
  }
  while (full && shrink_reservation_cache()) {
    const ReservationCacheLock lock(*this);
    full = reservation_cache_bytes_ > memory_->reservation_cache_bytes;
  }
}

// Returns the size that was unused for the longest time, or the excess of the only size. False: no
// request can be sent now.
bool Channel::shrink_reservation_cache() {
  std::uint64_t length = 0;
  CachedReservation taken[kUncachedAtOnce];
  std::uint32_t count = 0;
  {
    const ReservationCacheLock lock(*this);
    const auto oldest =
        std::min_element(reservation_cache_.begin(), reservation_cache_.end(),
                         [](const ReservationCacheOf& one, const ReservationCacheOf& other) {
                           return one.used < other.used;
                         });
    if (oldest == reservation_cache_.end()) return false;
    const std::uint64_t wanted_bytes =
        reservation_cache_.size() > 1 ? 0 : memory_->reservation_cache_bytes;
    length = oldest->length;
    while (count < kUncachedAtOnce && !oldest->items.empty() &&
           reservation_cache_bytes_ > wanted_bytes) {
      taken[count++] = oldest->items.back();
      oldest->items.pop_back();
      reservation_cache_bytes_ -= length;
    }
    if (oldest->items.empty()) reservation_cache_.erase(oldest);
  }
  ReservationId ids[kUncachedAtOnce];
  for (std::uint32_t i = 0; i < count; ++i) ids[i] = taken[i].id;
  if (count == 0 || give_back({ids, count})) return true;
  const ReservationCacheLock lock(*this);
  for (std::uint32_t i = 0; i < count; ++i) put_in_reservation_cache(length, taken[i]);
  return false;
}

[[gnu::hot]] void Channel::give_refill(const shm::ItemResult& result, std::uint64_t length) {
  if (result.refill_entry == shm::kNoRefill || !memory_->in_pool(result.refill_offset, length))
    return;
  Reserved refill;
  refill.id = {result.refill_entry, result.refill_generation};
  refill.length = length;
  refill.extent_count = 1;
  refill.extents[0] = {result.refill_offset, length};
  give_reservation_cache(refill);
}

[[gnu::hot]] void Channel::take_room(const shm::ItemResult& result, const ReservationId& id,
                                     std::uint64_t length) {
  give_refill(result, length);
  const bool still_reserved = result.status == MC_NO_SPACE || result.status == MC_CANCELLED;
  if (still_reserved) give_back(id);
}

Result<Channel::Ticket> Channel::send_back(std::span<const ReservationId> ids) {
  const auto count = static_cast<std::uint32_t>(ids.size());
  const auto bytes =
      static_cast<std::uint32_t>(shm::result_bytes(count) + count * sizeof(shm::PutItem));
  auto ticket = prepare(bytes);
  if (!ticket) return ticket;
  unsigned char* at = arguments(*ticket) + shm::result_bytes(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    shm::PutItem item{};
    item.entry = ids[i].entry;
    item.generation = ids[i].generation;
    std::memcpy(at + i * sizeof item, &item, sizeof item);
  }
  submit(*ticket, shm::Op::kAbandon, 0, count, now_ns() + MC_DEFAULT_TIMEOUT_NS);
  return ticket;
}

bool Channel::give_back(std::span<const ReservationId> ids) {
  const auto ticket = send_back(ids);
  if (ticket) forget(*ticket);
  return ticket.has_value();
}

// Too many requests in flight: the next reader of the object reports it again.
void Channel::report_damage(std::uint32_t entry) {
  const auto ticket = prepare(0);
  if (!ticket) return;
  submit(*ticket, shm::Op::kCheck, 0, 0, now_ns() + MC_DEFAULT_TIMEOUT_NS, entry);
  forget(*ticket);
}

void Channel::take_granted(Ticket ticket, std::vector<Reserved>& granted) {
  const ReleaseAtEnd at_end(*this, ticket.slot);
  const Pending& pending = pending_[ticket.slot];
  const std::uint32_t count = std::min(pending.completion.item_count, pending.request.item_count);
  for (std::uint32_t i = 0; i < count; ++i) {
    shm::ReservedItem item;
    std::memcpy(&item, shared_->arguments + pending.argument_offset + i * sizeof item, sizeof item);
    Reserved reserved;
    reserved.id = {item.entry, item.generation};
    reserved.length = item.length;
    reserved.extent_count = std::min<std::uint32_t>(item.extent_count, MC_MAX_EXTENTS);
    std::uint64_t room = 0;
    bool sound = reserved.extent_count > 0;
    for (std::uint32_t e = 0; e < reserved.extent_count; ++e) {
      reserved.extents[e] = item.extents[e];
      sound &= memory_->in_pool(item.extents[e].offset_bytes, item.extents[e].length_bytes);
      sound = sound && item.extents[e].length_bytes > 0;
      if (sound) room += item.extents[e].length_bytes;
    }
    // Later writes run through the extents by the requested length, so the extents must hold that
    // length.
    sound = sound && reserved.length == pending.request.a && reserved.length <= room;
    if (sound) granted.push_back(reserved);
  }
}

// ---- Reading ------------------------------------------------------------------------------------

shm::Word64* Channel::free_pin() {
  for (std::uint32_t tries = 1; tries < shm::kPinSlots; ++tries) {
    if (next_pin_ >= shm::kPinSlots) next_pin_ = 1;
    shm::Word64& slot = shared_->pins[next_pin_++];
    if (slot.load_relaxed() == 0) return &slot;
  }
  return nullptr;
}

void Channel::free_pins_after(Ticket ticket, const std::uint32_t* slots, std::uint32_t count) {
  pending_[ticket.slot].pin_slots.assign(slots, slots + count);
}

void Channel::arm_eventfd() { shm::announce_client_sleep(shared_->header, shm::kClientInPoll); }

}  // namespace mc::client
