// SPDX-License-Identifier: Apache-2.0
//
// The asking end of a queue pair, and the slices posted to it in order. Requests are
//   gathered in a chain, which a single doorbell posts. A completion says that all earlier requests
//   of the queue pair are done too. So only some requests are signalled: the last of a chain, and a
//   request each signal_bytes. A requester that learned of a window only at the end would leave the
//   line empty meanwhile.
//
//     work request id   │ 0 │ lane index 15 │ generation 24 │ number 24 │
//
//   A completion with another generation than the lane's is of a destroyed queue pair, and is
//   ignored.
// Threads: the transport's.
// Owns: the queue pair.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "transport/flow/operations.h"
#include "transport/rdma/queue_pair.h"

namespace mc::transport::rdma {

struct Slice {
  OperationId operation = kNoOperation;  // none: a probe
  std::uint64_t offset_bytes = 0;        // in the operation
  std::uint32_t size_bytes = 0;
  Priority priority = Priority::kForeground;
  Cursor start;
  std::uint64_t sent_ns = 0;
};

class Lane {
 public:
  // index: in the transport's table of lanes. generation: differs from the generation of any
  // earlier queue pair with that index.
  Lane(QueuePair pair, std::uint32_t index, std::uint32_t generation)
      : device_(&pair.device()),
        pair_(std::move(pair)),
        index_(index),
        generation_(generation & kPacketNumberMask),
        first_id_(std::uint64_t{index_} << 48 | std::uint64_t{generation_} << 24),
        most_pieces_(device_->max_pieces()) {
    link_chain();
  }
  ~Lane() { device_->on_ended(posted()); }

  static std::uint32_t index_of(std::uint64_t work_id) {
    return static_cast<std::uint32_t>(work_id >> 48);
  }
  // Whether the later of two completions says all that the earlier one says.
  static bool says_all_of(const ibv_wc& later, const ibv_wc& earlier) {
    return later.wr_id >> 24 == earlier.wr_id >> 24 && later.status == IBV_WC_SUCCESS &&
           earlier.status == IBV_WC_SUCCESS;
  }
  bool is_mine(std::uint64_t work_id) const {
    return (work_id >> 24 & kPacketNumberMask) == generation_;
  }

  QueuePair& pair() { return pair_; }
  std::uint32_t generation() const { return generation_; }
  // Hands the queue pair to a thread that makes the pair ready.
  QueuePair lend() { return std::move(pair_); }
  void give_back(QueuePair pair) { pair_ = std::move(pair); }
  Device& device() const { return *device_; }
  std::uint32_t index() const { return index_; }
  // The requests that the lane takes now.
  std::uint32_t room() const { return std::min(kPairDepth - posted(), device_->room()); }
  std::uint32_t posted() const { return tail_ - head_; }
  // The i-th oldest slice.
  const Slice& at(std::uint32_t i) const { return slices_[(head_ + i) % kPairDepth]; }

  bool carries(OperationId operation) const {
    for (std::uint32_t i = 0; i < posted(); ++i) {
      if (at(i).operation == operation) return true;
    }
    return false;
  }
  // REQUIRES: posted() > 0.
  const Slice& newest() const { return at(posted() - 1); }

  // The next request and its slice. The caller fills in slice and pieces, up to most_pieces, and
  // the remote address. REQUIRES: room() > 0.
  struct Next {
    Slice& slice;
    ibv_send_wr& request;
    ibv_sge* pieces;
    std::uint32_t most_pieces;
  };
  Next next() {
    // Posts a full chain.
    if (chained_ == kMaxChain) static_cast<void>(flush());
    return {slices_[tail_ % kPairDepth], chain_[chained_], pieces_[chained_].data(), most_pieces_};
  }
  // Adds the request to the chain. The request is signalled if signal_bytes have been added since
  // the last signalled request.
  void add(const Next& next, Verb verb, std::uint64_t signal_bytes) {
    ibv_send_wr& request = next.request;
    const std::uint32_t bytes = next.slice.size_bytes;
    request.wr_id = first_id_ | (tail_ & kPacketNumberMask);
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = 0;
    if (verb != Verb::kRead) {
      request.opcode = verb == Verb::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
      if (bytes > 0 && bytes <= pair_.inline_bytes()) request.send_flags = IBV_SEND_INLINE;
    }
    unsignalled_bytes_ += bytes;
    if (unsignalled_bytes_ >= signal_bytes) {
      request.send_flags |= IBV_SEND_SIGNALED;
      unsignalled_bytes_ = 0;
    }
    ++chained_;
    ++tail_;
    device_->on_posted();
  }
  void add_probe();
  // Posts the chain. False: the queue pair has failed.
  bool flush();
  // Destroys the queue pair. Afterwards the device touches no piece. at() still returns the slices.
  void end();

  // The number of oldest slices that a completion ends: all up to the completed request.
  std::uint32_t done_by(std::uint64_t work_id) const {
    const auto number = static_cast<std::uint32_t>(work_id) & kPacketNumberMask;
    const std::uint32_t count = ((number - head_) & kPacketNumberMask) + 1;
    return count <= posted() ? count : 0;
  }
  // Forgets the oldest slices. REQUIRES: count <= posted().
  void pop(std::uint32_t count) {
    head_ += count;
    device_->on_ended(count);
  }

 private:
  static constexpr std::uint32_t kMaxChain = 32;

  void link_chain();

  Device* device_;
  QueuePair pair_;
  const std::uint32_t index_;
  const std::uint32_t generation_;
  const std::uint64_t first_id_;
  const std::uint32_t most_pieces_;
  std::uint32_t head_ = 0;  // number of the oldest slice
  std::uint32_t tail_ = 0;
  std::uint32_t chained_ = 0;
  std::uint64_t unsignalled_bytes_ = 0;
  bool failed_ = false;
  std::array<Slice, kPairDepth> slices_;
  std::array<ibv_send_wr, kMaxChain> chain_;
  std::array<std::array<ibv_sge, kMaxSlicePieces>, kMaxChain> pieces_;
};

}  // namespace mc::transport::rdma
