// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/copier.h"

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::transfer {

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kMaxChunkBytes = 4 << 20;

// Two halves, so that two threads end together, but limited: a deadline may have to wait for one
// chunk.
std::uint64_t chunk_of(const Request& request) {
  const std::uint64_t size_bytes = request.size_bytes;
  if (size_bytes < request.share_bytes()) return size_bytes;
  const std::uint64_t half = (size_bytes / 2 + kPageBytes - 1) / kPageBytes * kPageBytes;
  return std::min(half, kMaxChunkBytes);
}

}  // namespace

void Copier::stop() {
  {
    MutexLock lock(loop_.mutex);
    stopping_ = true;
    wakes_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Copier::start(Batch& batch, std::uint32_t index, const DirectoryEntry& entry,
                   const EnginePeer& peer, bool registered) {
  Request& request = batch.requests[index];
  request.state = Request::State::kCopying;
  request.taken_bytes = 0;
  request.bytes = 0;
  request.failing = MC_OK;
  request.stale = false;
  request.entry = entry;
  request.generation = peer.directory.generation;
  request.window = registered ? peer.same_host->window(entry, request.generation) : nullptr;
  batch.copies.push_back(index);
  if (!batch.submitting) wake(batch);
}

bool Copier::take_chunk(Batch& batch, Chunk* chunk) {
  while (!batch.copies.empty()) {
    const std::uint32_t index = batch.copies.front();
    Request& request = batch.requests[index];
    if (request.state != Request::State::kCopying || request.taken_bytes == request.size_bytes) {
      batch.copies.pop_front();
      continue;
    }
    const EnginePeer* const peer = peers_.find(request.segment);
    const bool late = now_ns() >= batch.deadline_ns;
    if (late || peer == nullptr || !peer->same_host) {
      batch.copies.pop_front();
      sink_.on_copy_stopped(batch, request,
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

void Copier::copy_chunk(Batch& batch, const Chunk& chunk) {
  const transport::Outcome outcome =
      loop_.without_lock([&] { return chunk.peer->copy(chunk.range); });
  Request& request = batch.requests[chunk.index];
  --request.chunks_open;
  if (outcome == transport::Outcome::kDone) {
    request.bytes += chunk.range.size_bytes;
    copied_bytes_ += chunk.range.size_bytes;
    if (chunk.range.write) written_bytes_ += chunk.range.size_bytes;
  } else {
    request.taken_bytes = request.size_bytes;
    if (outcome == transport::Outcome::kStale) request.stale = true;
    if (request.failing == MC_OK) request.failing = transport::to_status(outcome).code();
  }
  if (request.state == Request::State::kCopying && request.chunks_open == 0 &&
      request.taken_bytes == request.size_bytes) {
    sink_.on_copied(batch, chunk.index, outcome);
  }
}

void Copier::copy_all(Batch& batch, std::uint64_t deadline_ns) {
  loop_.assert_held();
  Chunk chunk;
  while (now_ns() < deadline_ns && take_chunk(batch, &chunk)) copy_chunk(batch, chunk);
  // The caller stops waiting before the batch's deadline.
  if (!batch.copies.empty()) wake(batch);
}

void Copier::wake(Batch& batch) {
  if (batch.queued) return;
  batch.queued = true;
  ++batch.users;
  queue_.push_back(slot_of(batch.id));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wakes_.notify_one();
}

void Copier::run() {
  MutexLock lock(loop_.mutex);
  while (!stopping_) {
    if (queue_.empty()) {
      wakes_.wait(loop_.mutex);
      continue;
    }
    Batch& batch = sink_.batch_at(queue_.front());
    queue_.pop_front();
    batch.queued = false;
    Chunk chunk;
    while (!stopping_ && take_chunk(batch, &chunk)) copy_chunk(batch, chunk);
    sink_.leave(batch);
  }
}

}  // namespace mc::transfer
