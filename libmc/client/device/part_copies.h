// SPDX-License-Identifier: Apache-2.0
//
// Copies of a call between parts of objects or reservations and the caller's memory: at once, or in the
//   order of a stream.
// Threads: as the channel.
// Trusts: the caller's pointers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libmc/client/device/stream_copies.h"
#include "libmc/client/session/channel.h"
#include "libmc/device/memory.h"
#include "mc/mc.h"

namespace mc::client {

class PartCopies {
 public:
  explicit PartCopies(device::Direction direction) : direction_(direction) {}

  // Adds the bytes from offset on, of an object that has these spans, as many as the pieces have, but at
  // most so many. False: a piece is null, or the bytes end beyond the object; the part may be added then.
  template <typename Span, typename Piece>
  bool add(std::span<const Span> spans, std::uint64_t length, std::uint64_t offset,
           std::span<const Piece> pieces, std::uint64_t most = ~std::uint64_t{0});
  void append(const PartCopies& more) {
    parts_.insert(parts_.end(), more.parts_.begin(), more.parts_.end());
  }
  bool empty() const { return parts_.empty(); }

  // Returns after the copies. Memory of the host and of devices may be mixed. Errors:
  // MC_INVALID_ARGUMENT (a part ends beyond its device allocation), MC_DEVICE_FAILED.
  Status run(Channel& channel) const;
  // No part is memory of a device: the copies need no channel.
  bool is_of_host() const;
  void run_on_host() const;
  // All parts are memory of one device. Errors: those of StreamCopies::begin(), and MC_INVALID_ARGUMENT.
  Status begin(Client& client, Channel& channel, mc_stream stream,
               const StreamCopies::Ending& ending) const;

 private:
  void add_bytes(std::byte* shared, std::uint64_t callers, std::uint64_t bytes) {
    if (bytes > 0) parts_.push_back({callers, shared, bytes});
  }
  Result<int> device_of_all() const;

  device::Direction direction_;
  std::vector<device::DevicePiece> parts_;
};

template <typename Span, typename Piece>
bool PartCopies::add(std::span<const Span> spans, std::uint64_t length, std::uint64_t offset,
                     std::span<const Piece> pieces, std::uint64_t most) {
  for (const Piece& piece : pieces) {
    std::uint64_t bytes = std::min<std::uint64_t>(piece.size, most);
    most -= bytes;
    if (piece.data == nullptr && bytes > 0) return false;
    if (offset > length || bytes > length - offset) return false;
    auto callers = reinterpret_cast<std::uint64_t>(piece.data);
    std::uint64_t before = offset;  // of the rest of the piece, from the start of a span
    offset += bytes;
    for (const Span& span : spans) {
      if (bytes == 0) break;
      if (before >= span.size) {
        before -= span.size;
        continue;
      }
      const std::uint64_t step = std::min<std::uint64_t>(bytes, span.size - before);
      add_bytes(const_cast<std::byte*>(static_cast<const std::byte*>(span.data)) + before, callers,
                step);
      callers += step;
      bytes -= step;
      before = 0;
    }
  }
  return true;
}

}  // namespace mc::client
