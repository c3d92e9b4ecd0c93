// SPDX-License-Identifier: Apache-2.0
//
// Puts. A put reserves room, copies and sums the value in one pass, and asks the agent
//   to publish the object. In an isolated namespace, the put copies to staging; the agent copies
//   and publishes.
//
//   items ─► exists? ─► reservation (cached, or one request for many) ─► copy ─► kPut, 8 items a
//   request, while the next items are copied ─► results: new reservations for the cache
//
// Threads: as the given channel.
#pragma once

#include <string>
#include <vector>

#include "libmc/client/client.h"
#include "libmc/client/session/channel.h"
#include "mc/mc.h"

namespace mc::client {

struct PutRules {
  std::uint64_t deadline_ns = 0;
  mc_slice parent{};
  mc_pin pin = MC_PIN_NONE;
  std::uint32_t pin_ttl_s = 0;
  bool upsert = false;
  std::uint32_t replicas = 0;
  bool local = false;  // does not wait for the cluster

  std::uint16_t flags() const {
    return static_cast<std::uint16_t>((upsert ? shm::kFlagUpsert : 0) |
                                      (local ? shm::kFlagLocal : 0));
  }
};

// An object whose bytes are in the pool (or in staging), but not yet published.
struct WrittenItem {
  std::string key;
  shm::PutItem fields{};
  Reserved reserved;
  bool staged = false;  // false: in the pool
};

// Number of bytes to reserve for a value of this length.
std::uint64_t reservation_bytes(std::uint64_t length);
std::uint64_t value_bytes(const mc_put_item& item);
mc_status check_item(const mc_put_item& item);
inline void set_reservation(shm::PutItem& fields, const ReservationId& id) {
  fields.entry = id.entry;
  fields.generation = id.generation;
}
// The fields that follow from the item and the rules; the rest is zero.
shm::PutItem fields_of(const Channel& channel, const mc_put_item& item, const PutRules& rules);

// Writes the items' statuses; returns the first failure.
mc_status put_items(Client& client, Channel& channel, mc_put_item* items, std::size_t count,
                    const PutRules& rules);
// Whether a value that the pool refused with this status may be offered to other hosts, from
// staging.
bool may_offer_elsewhere(const Channel& channel, const Status& status);
// Reserves pool bytes and waits for room until the deadline. In a clustered namespace, the call
// waits only while room may become free, except for a group, which is never offered to other hosts.
Status reserve_pool(Channel& channel, std::uint64_t bytes, std::uint32_t count,
                    std::uint64_t deadline_ns, std::vector<Reserved>& granted,
                    bool for_group = false);
// Copies the pieces into the reservation and continues *sum, which starts as the key's hash.
// Channel::submit() orders these copies before any later request of this thread. Errors: those of
// copies from devices (caller_memory.h); the caller then keeps the reservation.
Status copy_into(const Memory& memory, const Reserved& reserved, const mc_slice* pieces,
                 std::size_t piece_count, std::uint64_t* sum);
// Publishes written items; with kFlagGroup all or nothing. The reservations of failed items
// go back to the agent.
Status publish_items(Channel& channel, const WrittenItem* items, std::size_t count,
                     std::uint16_t flags, std::uint64_t deadline_ns);
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
