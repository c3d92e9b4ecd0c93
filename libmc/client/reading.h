// SPDX-License-Identifier: Apache-2.0
//
// What it is: local hits: the caller's thread finds the object in the index, pins it, and copies it
// or
//   hands out a view. No other process runs.
// Threads: as the channel that is passed.
#pragma once

#include "libmc/client/session/channel.h"
#include "mc/mc.h"

namespace mc::client {

// MC_OK if the key's size is allowed.
inline mc_status check_key(mc_slice key) {
  return key.data != nullptr && key.size - 1 < MC_MAX_KEY_BYTES ? MC_OK : MC_INVALID_ARGUMENT;
}

// As much of an object is loaded while its entry and key are still on their way. More would only
// keep those waiting.
inline constexpr std::uint64_t kAheadBytes = 2048;

std::uint64_t hash_of(const Channel& channel, mc_slice key);
// Copies [offset, offset + *length) of the object (*length 0: to its end) into the pieces. *length
// becomes the bytes copied; with MC_BUFFER_TOO_SMALL the object's length.
mc_status read_object(Channel& channel, mc_slice key, std::uint64_t hash, const mc_span* pieces,
                      std::size_t piece_count, std::uint64_t offset, std::uint64_t* length);
// The same for a whole object and one piece, as most reads are.
mc_status read_whole(Channel& channel, mc_slice key, void* buffer, std::size_t capacity,
                     std::uint64_t* length);
mc_status view_object(Channel& channel, mc_client* client, mc_slice key, std::uint64_t hash,
                      mc_view* view);
// For objects that are pinned already. The first gives the bytes copied, or the object's length, in
// *length, as read_object() does; the second is false when the extents make no sense.
mc_status read_pieces(const Memory& memory, const shm::FoundObject& found, const mc_span* pieces,
                      std::size_t piece_count, std::uint64_t offset, std::uint64_t* length);
bool view_spans(const Memory& memory, const shm::FoundObject& found, mc_view* view);
// True if the object is there; notes the use for eviction if touch.
bool object_exists(Channel& channel, mc_slice key, std::uint64_t hash, bool touch);
mc_status stat_object(Channel& channel, mc_slice key, std::uint64_t hash, mc_stat_info* info);

}  // namespace mc::client
