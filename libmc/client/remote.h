// SPDX-License-Identifier: Apache-2.0
//
// What it is: what is not on this host but may be on another of the cluster: the agent fetches it
// and
//   lends the bytes, pinned in a slot of this channel, so that from then on it is read like a local
//   object. Only clients of a clustered namespace come here, and only after a local miss.
// Threads: as the channel that is passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "libmc/client/session/channel.h"
#include "mc/mc.h"
#include "shm/index_reader.h"

namespace mc::client {

inline bool may_be_elsewhere(const Channel& channel) { return channel.memory().clustered; }

struct FetchedObject {
  mc_status status = MC_NOT_FOUND;
  shm::Word64* pin = nullptr;  // holds the object until it is cleared
  shm::FoundObject found;
};

inline constexpr std::size_t kFetchBatch = 128;

// A question about up to kFetchBatch keys, whose answer is awaited by the caller. kFetch: the slots
// are marked as wanted, one a key. Nothing: the ring is full.
std::optional<Channel::Ticket> ask_about(Channel& channel, shm::Op op, const mc_slice* keys,
                                         std::size_t count, const std::uint32_t* slots,
                                         std::uint64_t deadline_ns);
// What came for a slot. Where the status is not MC_OK the slot is clear again.
FetchedObject take_fetched(const Channel& channel, shm::Word64* pin, const shm::ItemResult& result);

// Fetches up to kFetchBatch objects. Where the status is not MC_OK the slot is clear again.
void fetch_objects(Channel& channel, const mc_slice* keys, std::size_t count,
                   FetchedObject* fetched, std::uint64_t deadline_ns);
// Statuses: MC_OK or MC_NOT_FOUND. lengths: of those that are there; or null.
void exist_elsewhere(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                     std::uint64_t* lengths, std::uint64_t deadline_ns);

// What read_object() and view_object() do with an object that was found here.
mc_status read_fetched(Channel& channel, const FetchedObject& fetched, const mc_span* pieces,
                       std::size_t piece_count, std::uint64_t offset, std::uint64_t* length);
mc_status view_fetched(Channel& channel, mc_client* client, const FetchedObject& fetched,
                       mc_view* view);

}  // namespace mc::client
