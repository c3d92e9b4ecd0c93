// SPDX-License-Identifier: Apache-2.0
//
// What it is: the asking end of one queue pair, and the slices posted to it in their order.
//   Requests are gathered in a chain and posted by one doorbell; only the last of a chain is
//   signalled, since a completion says that all before it in the pair are done too.
//
//     work request id   │ 0 │ lane index 15 │ generation 24 │ number 24 │
//
//   A completion whose generation is not the lane's is of a pair that is gone: it says nothing.
// Threads: the transport's. Owns the pair.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/operations.h"
#include "transport/rdma/queue_pair.h"

namespace mc::transport::rdma {

struct Slice {
  OperationId operation = kNoOperation;  // none: a probe
  std::uint64_t offset_bytes = 0;        // in the operation
  std::uint32_t size_bytes = 0;
  Cursor start;
  Priority priority = Priority::kForeground;
};

// Where in a peer's memory.
struct RemotePlace {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

class Lane {
 public:
  // index: of the transport's table of lanes. generation: differs from that of any pair that had
  // the index before.
  Lane(QueuePair pair, std::uint32_t index, std::uint32_t generation)
      : device_(&pair.device()),
        pair_(std::move(pair)),
        index_(index),
        generation_(generation & kPacketNumberMask) {}
  ~Lane() { device_->on_ended(posted()); }

  static std::uint32_t index_of(std::uint64_t work_id) {
    return static_cast<std::uint32_t>(work_id >> 48);
  }
  bool is_mine(std::uint64_t work_id) const {
    return (work_id >> 24 & kPacketNumberMask) == generation_;
  }

  QueuePair& pair() { return pair_; }
  std::uint32_t generation() const { return generation_; }
  // While it is on its way to be ready.
  QueuePair lend() { return std::move(pair_); }
  void give_back(QueuePair pair) { pair_ = std::move(pair); }
  Device& device() const { return *device_; }
  std::uint32_t index() const { return index_; }
  bool has_room() const { return tail_ - head_ < kPairDepth && device().has_room(); }
  std::uint32_t posted() const { return tail_ - head_; }
  // The i-th oldest.
  const Slice& at(std::uint32_t i) const { return slices_[(head_ + i) % kPairDepth]; }

  // Adds a request to the chain. REQUIRES: has_room(); places.size() <= max_pieces().
  void add(const Slice& slice, Verb verb, std::span<const ibv_sge> places,
           const RemotePlace& remote);
  void add_probe();
  // Posts the chain. False: the pair has failed.
  bool flush();
  // The pair is gone when it has returned: the device touches no piece any more, nor will it. The
  // slices can still be asked for.
  void end();

  // How many of the oldest a completion says are done: all up to its number.
  std::uint32_t done_by(std::uint64_t work_id) const;
  void pop();

 private:
  static constexpr std::uint32_t kMaxChain = 32;

  ibv_send_wr& append(const Slice& slice, std::span<const ibv_sge> places);

  Device* device_;
  QueuePair pair_;
  const std::uint32_t index_;
  const std::uint32_t generation_;
  std::uint32_t head_ = 0;  // number of the oldest
  std::uint32_t tail_ = 0;
  std::uint32_t chained_ = 0;
  bool failed_ = false;
  std::array<Slice, kPairDepth> slices_;
  std::array<ibv_send_wr, kMaxChain> chain_;
  std::array<std::array<ibv_sge, kMaxSlicePieces>, kMaxChain> places_;
};

}  // namespace mc::transport::rdma
