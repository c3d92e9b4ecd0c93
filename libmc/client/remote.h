// SPDX-License-Identifier: Apache-2.0
//
// Reads of objects that are not in this host's pool but may be on another host of the cluster, or on
//   a disk of this host. The agent fetches the object and pins the bytes in a slot of this channel. Then
//   the object is read like a local object. Clients use this after a local miss, in a clustered namespace
//   and in a namespace with a tier on disks.
// Threads: as the given channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmc/client/session/channel.h"
#include "mc/mc.h"
#include "shm/index_reader.h"

namespace mc::client {

inline bool may_be_elsewhere(const Channel& channel) {
  return channel.memory().clustered || channel.memory().on_disks;
}

struct FetchedObject {
  mc_status status = MC_NOT_FOUND;
  shm::Word64* pin = nullptr;  // holds the object until the pin is cleared
  shm::FoundObject found;
};

inline constexpr std::size_t kFetchBatch = 128;

// Sends a kFetch, kExists or kRemove of keys; the caller waits for the answer. kFetch: the slots are
// marked as wanted, one per key, up to kFetchBatch. Errors: MC_BUSY.
Result<Channel::Ticket> ask_about(Channel& channel, shm::Op op, const mc_slice* keys,
                                  std::size_t count, const std::uint32_t* slots,
                                  std::uint64_t deadline_ns);
// Takes the result of a slot. If the status is not MC_OK, the slot is clear again.
FetchedObject take_fetched(const Channel& channel, shm::Word64* pin, const shm::ItemResult& result);

// Fetches up to kFetchBatch objects. If a status is not MC_OK, the slot is clear again.
void fetch_objects(Channel& channel, const mc_slice* keys, std::size_t count,
                   FetchedObject* fetched, std::uint64_t deadline_ns);
// statuses: as those of mc_exists_batch(). lengths: null, or receives the lengths of existing objects.
void exist_elsewhere(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                     std::uint64_t* lengths, std::uint64_t deadline_ns);

// The counterparts of read_object() and view_object() for fetched objects.
mc_status read_fetched(Channel& channel, const FetchedObject& fetched, const mc_span* pieces,
                       std::size_t piece_count, std::uint64_t offset, std::uint64_t* length);
mc_status view_fetched(Channel& channel, mc_client* client, const FetchedObject& fetched,
                       mc_view* view);

}  // namespace mc::client
