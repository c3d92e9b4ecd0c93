// SPDX-License-Identifier: Apache-2.0
#include "transport/flow/operations.h"

#include <algorithm>

namespace mc::transport {

Operations::Operations() {
  slots_.resize(kMaxOperations);
  generations_.resize(kMaxOperations);
  free_.reserve(kMaxOperations);
  for (std::uint32_t i = kMaxOperations; i > 0; --i) free_.push_back(i - 1);
}

OperationState* Operations::open() {
  if (free_.empty()) return nullptr;
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  ++in_flight_;
  OperationState& state = slots_[slot];
  state.id = (std::uint64_t{++generations_[slot]} << 32) | (slot + 1);
  return &state;
}

void Operations::start(Operation& operation, OperationState& state, std::uint64_t size_bytes) {
  operation.id = state.id;
  state.verb = operation.verb;
  state.priority = operation.priority;
  state.peer = operation.peer;
  state.cookie = operation.cookie;
  state.deadline_ns = operation.deadline_ns;
  state.region = operation.region;
  state.generation = operation.generation;
  state.offset_bytes = operation.offset_bytes;
  state.size_bytes = size_bytes;
  if (operation.pieces.size() <= kMaxPieces) {
    state.pieces.assign(operation.pieces.begin(), operation.pieces.end());
  }
}

std::optional<std::uint64_t> size_of(std::span<const Piece> pieces) {
  if (pieces.empty() || pieces.size() > kMaxPieces) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.data == nullptr || piece.size_bytes == 0 ||
        piece.size_bytes > kMaxOperationBytes - bytes) {
      return std::nullopt;
    }
    bytes += piece.size_bytes;
  }
  return bytes;
}

Event ended(const OperationState& operation, Outcome outcome) {
  Event event;
  event.outcome = outcome;
  event.verb = operation.verb;
  event.id = operation.id;
  event.cookie = operation.cookie;
  event.bytes = operation.done_bytes;
  event.peer = operation.peer;
  return event;
}

void Operations::close(OperationState& operation) {
  free_.push_back(static_cast<std::uint32_t>(operation.id) - 1);
  --in_flight_;
  // The next operation reuses the memory of the list of pieces.
  std::vector<Piece> pieces = std::move(operation.pieces);
  pieces.clear();
  operation = OperationState{};
  operation.pieces = std::move(pieces);
}

std::uint64_t append_vectors(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size,
                             std::size_t max_vectors, std::vector<iovec>& vectors) {
  std::uint64_t covered = 0;
  while (covered < size && at.piece < pieces.size() && vectors.size() < max_vectors) {
    const Piece& piece = pieces[at.piece];
    const std::uint64_t part = std::min(size - covered, piece.size_bytes - at.offset_bytes);
    if (part > 0) vectors.push_back({piece.data + at.offset_bytes, part});
    covered += part;
    at.offset_bytes += part;
    if (at.offset_bytes == piece.size_bytes) at = {at.piece + 1, 0};
  }
  return covered;
}

void advance(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size) {
  while (size > 0 && at.piece < pieces.size()) {
    const std::uint64_t part = std::min(size, pieces[at.piece].size_bytes - at.offset_bytes);
    size -= part;
    at.offset_bytes += part;
    if (at.offset_bytes == pieces[at.piece].size_bytes) at = {at.piece + 1, 0};
  }
}

}  // namespace mc::transport
