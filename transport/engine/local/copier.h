// SPDX-License-Identifier: Apache-2.0
//
// Copies between processes of one host, in chunks and without the engine's lock. Two
//   threads copy: the thread that waits for the batch, and the copying thread of the engine.
// Threads: under the engine's lock. copy_all() and the copying thread release the lock during each
//   chunk.
// Owns: the copying thread and the queue of batches with chunks to copy.
// Trusts: SameHost checks each chunk against the peer's region table.
#pragma once

#include <deque>
#include <memory>
#include <thread>

#include "transport/engine/batch.h"
#include "transport/engine/loop.h"
#include "transport/engine/peers.h"

namespace mc::transfer {

// Receives the ends of copies. Called with the lock.
class CopySink {
 public:
  virtual ~CopySink() = default;
  // All chunks of the request have ended. last: the outcome of the last chunk.
  virtual void on_copied(Batch& batch, std::uint32_t index, transport::Outcome last) = 0;
  // The request cannot be copied any further.
  virtual void on_copy_stopped(Batch& batch, Request& request, const Status& status) = 0;
  virtual Batch& batch_at(std::uint32_t slot) = 0;
  // Ends the copier's reference to the batch.
  virtual void leave(Batch& batch) = 0;
};

class Copier {
 public:
  Copier(Loop& loop, const Peers& peers, CopySink& sink)
      : loop_(loop), peers_(peers), sink_(sink) {}
  ~Copier() { stop(); }
  // Ends the copying thread. Takes the lock.
  void stop() MC_EXCLUDES(loop_.mutex);

  // registered: the local memory stays valid until the copy ends, so memcpy may touch the memory.
  void start(Batch& batch, std::uint32_t index, const DirectoryEntry& entry, const EnginePeer& peer,
             bool registered);
  // Hands the batch to the copying thread.
  void wake(Batch& batch);
  // Copies the batch's chunks in this thread, until the deadline.
  void copy_all(Batch& batch, std::uint64_t deadline_ns);

  std::uint64_t copied_bytes() const { return copied_bytes_; }
  std::uint64_t written_bytes() const { return written_bytes_; }  // part of copied_bytes()

 private:
  struct Chunk {
    std::uint32_t index = 0;
    std::shared_ptr<const SameHost> peer;
    SameHost::Range range;
  };
  bool take_chunk(Batch& batch, Chunk* chunk);
  void copy_chunk(Batch& batch, const Chunk& chunk) MC_REQUIRES(loop_.mutex);
  void run();

  Loop& loop_;
  const Peers& peers_;
  CopySink& sink_;
  std::deque<std::uint32_t> queue_;  // slots of batches with chunks to copy
  Condition wakes_;
  bool stopping_ = false;
  std::uint64_t copied_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::thread thread_;
};

}  // namespace mc::transfer
