// SPDX-License-Identifier: Apache-2.0
//
// The open batches and the path of each request: to a peer that must be found first, to
//   the transport, or to the copier, and to the end.
// Threads: under the engine's lock.
// Owns: the batches, until their callers free them and no queue refers to the batches.
// Trusts: the region tables of peers were checked by decode_directory().
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/engine/batch.h"
#include "transport/engine/local/copier.h"
#include "transport/engine/memory_registry.h"
#include "transport/engine/peers.h"
#include "transport/engine/slot_table.h"

namespace mc::transfer {

class Batches final : public PeerWaiters, public CopySink {
 public:
  Batches(Loop& loop, Peers& peers, Copier& copier, const MemoryRegistry& memory,
          DeviceStaging& devices)
      : loop_(loop), peers_(peers), copier_(copier), memory_(memory), devices_(devices) {}
  void start(transport::Transport& transport) { transport_ = &transport; }

  // Takes the batch and starts its requests. waits: the caller waits at once. Null, and *batch
  // stays: MC_MAX_TRANSFER_BATCHES are open.
  Batch* submit(std::unique_ptr<Batch>* batch, bool waits);
  // Null: no such batch, or freed.
  Batch* find(mc_transfer_batch id) const;
  // A batch with users is not removed. Each hold() needs a leave().
  void hold(Batch& batch) { ++batch.users; }
  void leave(Batch& batch) override;
  void free(Batch& batch);

  // The requests end with this status as soon as no thread and no transport uses the memory.
  void cancel(Batch& batch, const Status& status);
  void cancel_segment(mc_transfer_segment segment, const Status& status);
  // Requests with local memory in the range; returns the indexes.
  std::vector<std::uint32_t> cancel_local(Batch& batch, const std::byte* data,
                                          std::uint64_t size_bytes, const Status& status);
  template <typename Visit>
  void for_each_open(Visit visit) const {
    table_.for_each([&](Batch& batch) {
      if (!batch.ended()) visit(batch);
    });
  }

  // The loop's part (LoopSink).
  void on_completed(const transport::Event& event);
  void send_outgoing();
  bool has_outgoing() const { return !outgoing_.empty(); }
  void expire_waiting(std::uint64_t now_ns);
  bool has_waiting() const { return waiting_ > 0; }

 private:
  void on_peer_ready(const RequestRef& waiting) override;
  void on_peer_lost(const RequestRef& waiting, const Status& status) override;
  void on_copied(Batch& batch, std::uint32_t index, transport::Outcome last) override;
  void on_copy_stopped(Batch& batch, Request& request, const Status& status) override;
  Batch& batch_at(std::uint32_t slot) override { return *table_.at(slot); }

  // Starts the first stage from this one on that has requests, or cancels its requests after a failure.
  void start_from(Batch& batch, Batch::Stage stage);
  void start(Batch& batch, std::uint32_t index);
  void wait_for_peer(Batch& batch, std::uint32_t index, EnginePeer& peer);
  void route(Batch& batch, std::uint32_t index, EnginePeer& peer);
  void look_again(Batch& batch, std::uint32_t index, EnginePeer& peer, const Status& otherwise);
  void fill(const RequestRef& item, transport::Operation* operation, transport::Piece* piece);
  void end(Batch& batch, Request& request, const Status& status);
  void cancel(Batch& batch, Request& request, const Status& status);

  Loop& loop_;
  Peers& peers_;
  Copier& copier_;
  const MemoryRegistry& memory_;
  DeviceStaging& devices_;
  transport::Transport* transport_ = nullptr;
  SlotTable<Batch> table_{MC_MAX_TRANSFER_BATCHES};
  std::deque<RequestRef> outgoing_;  // for the transport
  std::uint32_t waiting_ = 0;        // requests in kWaiting
  std::uint32_t next_place_ = 0;     // of a question
};

}  // namespace mc::transfer
