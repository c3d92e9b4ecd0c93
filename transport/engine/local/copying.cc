// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that copies between processes of one host: in chunks, without the lock, by the
// thread that waits for the batch and by one of the engine's own.
#include <algorithm>

#include "libmc/base/clock.h"
#include "transport/engine/engine.h"

namespace mc::transfer {

namespace {

using transport::Outcome;
using State = Request::State;

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kMaxChunkBytes = 4 << 20;

// Halves, so that two threads end together, but no more than a deadline may have to wait for.
std::uint64_t chunk_of(const Request& request) {
  const std::uint64_t size_bytes = request.size_bytes;
  if (size_bytes < request.share_bytes()) return size_bytes;
  const std::uint64_t half = (size_bytes / 2 + kPageBytes - 1) / kPageBytes * kPageBytes;
  return std::min(half, kMaxChunkBytes);
}

}  // namespace

struct Engine::Chunk {
  std::uint32_t index = 0;
  std::shared_ptr<const SameHost> peer;
  SameHost::Range range;
};

void Engine::start_copying(Batch& batch, std::uint32_t index, const DirectoryEntry& entry,
                           const Peer& peer) {
  Request& request = batch.requests[index];
  request.state = State::kCopying;
  request.taken_bytes = 0;
  request.bytes = 0;
  request.failing = MC_OK;
  request.stale = false;
  request.entry = entry;
  const Region* const own = region_of(request.local, request.size_bytes);
  // Memory that is registered is there until it is unregistered, which waits for this copy.
  const bool sure = own != nullptr && (request.write ? own->readable : own->writable);
  request.window = sure ? peer.same_host->window(entry, peer.directory.generation) : nullptr;
  request.generation = peer.directory.generation;
  batch.copies.push_back(index);
  if (!batch.submitting) wake_copier(batch);
}

bool Engine::take_chunk(Batch& batch, Chunk* chunk) {
  while (!batch.copies.empty()) {
    const std::uint32_t index = batch.copies.front();
    Request& request = batch.requests[index];
    const Peer* const peer = find_peer(request.segment);
    const bool late = now_ns() >= batch.deadline_ns;
    if (request.state != State::kCopying || request.taken_bytes == request.size_bytes) {
      batch.copies.pop_front();
      continue;
    }
    if (late || peer == nullptr || !peer->same_host) {
      batch.copies.pop_front();
      cancel(batch, request,
             late ? Status(MC_TIMEOUT, "the copy did not end by its deadline")
                  : Status(MC_AGENT_UNAVAILABLE, "the peer is gone"));
      continue;
    }
    const std::uint64_t size =
        std::min(chunk_of(request), request.size_bytes - request.taken_bytes);
    chunk->index = index;
    chunk->peer = peer->same_host;
    chunk->range = {request.entry,
                    request.generation,
                    request.remote + request.taken_bytes,
                    request.local + request.taken_bytes,
                    size,
                    request.write,
                    request.window};
    request.taken_bytes += size;
    ++request.chunks_open;
    return true;
  }
  return false;
}

void Engine::copy_chunk(Lock& lock, Batch& batch, const Chunk& chunk) {
  lock.unlock();
  const Outcome outcome = chunk.peer->copy(chunk.range);
  contenders_.fetch_add(1, std::memory_order_relaxed);
  lock.lock();
  contenders_.fetch_sub(1, std::memory_order_relaxed);
  Request& request = batch.requests[chunk.index];
  --request.chunks_open;
  if (outcome == Outcome::kDone) {
    request.bytes += chunk.range.size_bytes;
    same_host_bytes_ += chunk.range.size_bytes;
    if (chunk.range.write) same_host_written_ += chunk.range.size_bytes;
  } else {
    request.taken_bytes = request.size_bytes;
    if (outcome == Outcome::kStale) request.stale = true;
    if (request.failing == MC_OK) request.failing = transport::to_status(outcome).code();
  }
  if (request.state == State::kCopying && request.chunks_open == 0 &&
      request.taken_bytes == request.size_bytes) {
    finish_copy(batch, chunk.index, outcome);
  }
}

void Engine::finish_copy(Batch& batch, std::uint32_t index, Outcome last) {
  Request& request = batch.requests[index];
  Peer* const peer = find_peer(request.segment);
  if (request.failing == MC_OK) {
    end(batch, request, Outcome::kDone);
  } else if (request.stale && peer != nullptr && peer->state == Peer::State::kReady) {
    look_again(batch, index, *peer,
               {MC_NOT_FOUND, "the peer unregistered that memory while it was transferred"});
  } else if (last == Outcome::kUnsupported && peer != nullptr && peer->same_host &&
             peer->state == Peer::State::kReady) {
    // A security policy that changed: the request goes over TCP, and all later ones.
    peer->same_host.reset();
    route(batch, index, *peer);
    send_outgoing();
    nudge();
  } else if (last == Outcome::kPeerLost && peer != nullptr) {
    const Status gone(MC_AGENT_UNAVAILABLE, "the peer's process is gone");
    end(batch, request, gone);
    lose(*peer, gone);
  } else {
    end(batch, request,
        last != Outcome::kDone ? transport::to_status(last) : Status(request.failing));
  }
}

void Engine::copy_all(Lock& lock, Batch& batch, std::uint64_t deadline_ns) {
  Chunk chunk;
  while (now_ns() < deadline_ns && take_chunk(batch, &chunk)) copy_chunk(lock, batch, chunk);
  // The caller's time is up, the batch's is not.
  if (!batch.copies.empty()) wake_copier(batch);
}

// ---- The copying thread -----------------------------------------------------------------------

void Engine::wake_copier(Batch& batch) {
  if (batch.queued) return;
  batch.queued = true;
  ++batch.users;
  copying_.push_back(slot_of(batch.id));
  if (!copier_.joinable()) copier_ = std::thread([this] { run_copier(); });
  copier_wakes_.notify_one();
}

void Engine::run_copier() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (copying_.empty()) {
      copier_wakes_.wait(lock);
      continue;
    }
    Batch& batch = *batches_[copying_.front()];
    copying_.pop_front();
    batch.queued = false;
    Chunk chunk;
    while (!stopping_ && take_chunk(batch, &chunk)) copy_chunk(lock, batch, chunk);
    leave(batch);
  }
}

}  // namespace mc::transfer
