// SPDX-License-Identifier: Apache-2.0
//
// Local hits. The caller's thread finds the object in the index, pins the object,
//   and copies the bytes or returns a view. No other process runs.
// Threads: as the given channel.
#pragma once

#include <string_view>

#include "libmc/client/session/channel.h"
#include "mc/mc.h"
#include "shm/messages.h"

namespace mc::client {

// MC_OK if a client may use the key.
inline mc_status check_key(mc_slice key) {
  if (key.data == nullptr || key.size - 1 >= MC_MAX_KEY_BYTES) return MC_INVALID_ARGUMENT;
  const std::string_view text{static_cast<const char*>(key.data), key.size};
  return text.starts_with(shm::kStripePrefix) ? MC_INVALID_ARGUMENT : MC_OK;
}

// Number of bytes of an object to prefetch while the entry and key are still loading. More bytes
// would only delay those.
inline constexpr std::uint64_t kAheadBytes = 2048;

std::uint64_t hash_of(const Channel& channel, mc_slice key);
// Copies [offset, offset + *length) of the object (*length 0: to the end) into the pieces. *length
// becomes the number of copied bytes; with MC_BUFFER_TOO_SMALL the object's length.
mc_status read_object(Channel& channel, mc_slice key, std::uint64_t hash, const mc_span* pieces,
                      std::size_t piece_count, std::uint64_t offset, std::uint64_t* length);
// The same for a whole object and one piece, the common case.
mc_status read_whole(Channel& channel, mc_slice key, void* buffer, std::size_t capacity,
                     std::uint64_t* length);
mc_status view_object(Channel& channel, mc_client* client, mc_slice key, std::uint64_t hash,
                      mc_view* view);
// The range that a read wants of an object: *length (0: to the end) becomes the bytes, and with
// MC_BUFFER_TOO_SMALL the object's length. MC_INVALID_ARGUMENT: the range ends beyond the object.
mc_status clip_read(std::uint64_t object_bytes, const mc_span* pieces, std::size_t piece_count,
                    std::uint64_t offset, std::uint64_t* length);
// For objects that are already pinned. read_pieces() sets *length as read_object() does. sum: null, or
// the hash of the key, which becomes the sum of the whole object's bytes. REQUIRES: the object is in
// the memory of the channel's session.
// view_spans() returns false if the extents are invalid.
mc_status read_pieces(Channel& channel, const shm::FoundObject& found, const mc_span* pieces,
                      std::size_t piece_count, std::uint64_t offset, std::uint64_t* length,
                      std::uint64_t* sum);
bool view_spans(const Memory& memory, const shm::FoundObject& found, mc_view* view);
// True if the object exists; touch notes the use for eviction.
bool object_exists(Channel& channel, mc_slice key, std::uint64_t hash, bool touch);
mc_status stat_object(Channel& channel, mc_slice key, std::uint64_t hash, mc_stat_info* info);

}  // namespace mc::client
