// SPDX-License-Identifier: Apache-2.0
//
// Writes: the steps of a put, removals and pins. PutBatch (put_batch.h) takes puts through these
//   steps. Groups and reservations of mc.h use the steps alone.
//
//   value ──write_to_pool() or write_to_staging()──► Put ──send()──► the agent ──settle()──► status
//                                                     └──drop()──► the room is free again
//
//   In an isolated namespace, a put copies to staging; the agent copies and publishes. Values for
//   which the pool has no room go through staging to other hosts.
// Threads: as the given channel.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libmc/client/session/channel.h"
#include "libmc/client/session/staging.h"
#include "mc/mc.h"

namespace mc::client {

struct PutRules {
  std::uint64_t deadline_ns = 0;
  mc_slice parent{};
  mc_pin pin = MC_PIN_NONE;
  std::uint32_t pin_ttl_s = 0;
  bool upsert = false;
  std::uint32_t replicas = 0;
  bool local = false;          // does not wait for the cluster
  bool replicated = false;     // waits for the replicas
  std::uint64_t host = 0;      // node id of the host that shall hold the object; 0: this host
  mc_stream stream = nullptr;  // that orders the copies

  std::uint16_t flags() const {
    return static_cast<std::uint16_t>((upsert ? shm::kFlagUpsert : 0) |
                                      (local ? shm::kFlagLocal : 0) |
                                      (replicated ? shm::kFlagReplicated : 0));
  }
  // The put of an existing key ends at once.
  bool keeps_existing() const { return !upsert && !replicated; }
};

// An object whose bytes are in the pool or in staging, but not yet published.
struct Put {
  mc_slice key{};  // valid until send() returns
  shm::PutItem fields{};
  std::uint64_t session = 0;         // serial of the memory of the session that has the bytes
  std::uint64_t reserved_bytes = 0;  // in the pool; 0: the bytes are in staging
  std::shared_ptr<Staging> staging;  // with a range of this put; null after send()
  std::size_t item = 0;              // for the caller
  mc_status status = MC_OK;          // after settle()

  bool in_pool() const { return reserved_bytes != 0; }
};

std::uint64_t value_bytes(const mc_put_item& item);
mc_status check_item(const mc_put_item& item);
// A put whose bytes are nowhere yet.
Put put_of(const Channel& channel, const mc_put_item& item, const PutRules& rules);

// The client names another host of the cluster.
inline bool is_for_other_host(const Channel& channel, const PutRules& rules) {
  const Memory& memory = channel.memory();
  return rules.host != 0 && rules.host != memory.node_id && memory.clustered;
}

// If the session is replaced during a call, the call is tried again on the new session.
inline constexpr int kSessionTries = 3;

// Asks for reservations of one size. elsewhere: the agent refuses at once, unless room may become
// free here, because another host may have room. Errors: MC_BUSY.
Result<Channel::Ticket> send_reserve(Channel& channel, std::uint64_t bytes, std::uint32_t count,
                                     bool elsewhere, std::uint64_t deadline_ns);
// Takes the agent's answer. Errors: MC_NO_SPACE, MC_TOO_LARGE, MC_SESSION_LOST, MC_CANCELLED.
Status take_reserved(Channel& channel, Channel::Ticket ticket, std::vector<Reserved>& granted);
// Asks for one reservation, and waits. Errors: as above, and MC_TIMEOUT.
Status reserve(Channel& channel, std::uint64_t bytes, std::uint64_t deadline_ns,
               Reserved& reserved);
// Whether a value that the pool refused with this status may be offered to other hosts, from
// staging.
bool may_offer_elsewhere(const Channel& channel, mc_status status);

// Waits until the deadline for a range of staging. Meanwhile, requests of this channel that are done
// free their ranges. nullopt: no room by then.
std::optional<std::uint64_t> allocate_staging(Channel& channel, Staging& staging,
                                              std::uint64_t bytes, std::uint64_t deadline_ns);

// The spans of a reservation, ready for writes; the put's bytes are there.
std::vector<mc_span> room_of(const Memory& memory, const Reserved& reserved);
void locate(const Memory& memory, const Reserved& reserved, Put& put);
// Copies and sums the value. hash: of the key, in this session. Channel::submit() orders these
// copies before any later request of this thread. Errors: those of copies from devices
// (caller_memory.h); the caller then keeps the reservation.
Status write_to_pool(Channel& channel, const Reserved& reserved, std::uint64_t hash,
                     const mc_slice* pieces, std::size_t piece_count, Put& put);
// Copies the value to an allocated range, which the put then owns. stream: null, or of the copies.
// Errors: as above; the range is then free again.
Status write_to_staging(Channel& channel, std::shared_ptr<Staging> staging, std::uint64_t offset,
                        const mc_slice* pieces, std::size_t piece_count, mc_stream stream,
                        Put& put);

// Asks the agent to publish the puts; with kFlagGroup all or nothing. All lie in the pool, or all
// in staging. host: of puts in staging, another host to hold the objects. Errors: MC_BUSY,
// MC_TOO_LARGE (the keys together); the puts are then unchanged.
Result<Channel::Ticket> send(Channel& channel, std::span<Put> puts, std::uint16_t flags,
                             std::uint64_t deadline_ns, std::uint64_t host = 0);
// Takes the agent's answer into the puts. Reservations of failed puts go back to the agent.
void settle(Channel& channel, Channel::Ticket ticket, std::span<Put> puts, std::uint16_t flags);
// send(), the wait, and settle(). The puts are gone afterwards, whatever the outcome.
Status publish(Channel& channel, std::span<Put> puts, std::uint16_t flags,
               std::uint64_t deadline_ns);
// Frees the room of puts that were not sent. channel: null frees staging only.
void drop(Channel* channel, std::span<Put> puts);

Status remove_items(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                    std::uint64_t deadline_ns);
Status set_pin(Channel& channel, mc_slice key, mc_pin pin, std::uint32_t ttl_s,
               std::uint64_t deadline_ns);

// Writes one item's fields and key to `at`; returns the number of bytes written.
std::uint32_t encode_item(unsigned char* at, const shm::PutItem& fields, mc_slice key);
inline std::uint32_t encoded_bytes(std::size_t key_bytes) {
  return static_cast<std::uint32_t>(sizeof(shm::PutItem)) +
         shm::padded_key_bytes(static_cast<std::uint32_t>(key_bytes));
}

}  // namespace mc::client
