// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/batches.h"

#include <array>

#include "libmc/base/clock.h"
#include "transport/engine/local/local_memory.h"

namespace mc::transfer {

namespace {

using transport::Outcome;
using State = Request::State;

constexpr std::size_t kSubmitAtOnce = 64;
constexpr std::uint8_t kMaxLooks = 2;

Status status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStale:
      return {MC_NOT_FOUND, "the peer unregistered that memory during the transfer"};
    case Outcome::kRefused:
      return {MC_PERMISSION_DENIED, "the peer did not register that memory for such access"};
    case Outcome::kUnsupported:
      return {MC_UNSUPPORTED, "the driver of the peer's device refused to copy"};
    case Outcome::kInvalid:
      return {MC_INVALID_ARGUMENT, "there is no such memory, here or at the peer"};
    case Outcome::kPeerLost:
      return {MC_AGENT_UNAVAILABLE, "the peer no longer answers; is its process alive?"};
    default:
      return transport::to_status(outcome);
  }
}

}  // namespace

// ---- Batches ----------------------------------------------------------------------------------

Batch* Batches::submit(std::unique_ptr<Batch>* given, bool waits) {
  if (table_.full()) return nullptr;
  Batch& batch = *table_.add(std::move(*given));
  hold(batch);
  batch.submitting = true;
  start_from(batch, Batch::Stage::kData);
  batch.submitting = false;
  send_outgoing();
  // A sum of 1 is worth a second thread.
  double copies = 0;
  for (const std::uint32_t i : batch.copies) {
    const Request& request = batch.requests[i];
    copies += static_cast<double>(request.size_bytes) / static_cast<double>(request.share_bytes());
  }
  if (copies > 0 && (!waits || copies >= 1)) copier_.wake(batch);
  // A caller that waits drives at once; a second thread would only compete.
  if (!waits) loop_.nudge();
  leave(batch);
  return &batch;
}

Batch* Batches::find(mc_transfer_batch id) const {
  Batch* const batch = table_.find(id);
  return batch != nullptr && !batch->freed ? batch : nullptr;
}

void Batches::leave(Batch& batch) {
  if (--batch.users == 0 && batch.freed) table_.remove(batch);
}

void Batches::free(Batch& batch) {
  hold(batch);
  batch.freed = true;
  leave(batch);
}

// ---- The way of a request ---------------------------------------------------------------------

void Batches::start_from(Batch& batch, Batch::Stage stage) {
  Batch::Range range = batch.requests_of(stage);
  while (range.begin == range.end && stage != Batch::Stage::kNote) {
    stage = static_cast<Batch::Stage>(static_cast<std::uint8_t>(stage) + 1);
    range = batch.requests_of(stage);
  }
  batch.stage = stage;
  batch.stage_open = range.end - range.begin;
  const bool cancels = batch.failed && stage != Batch::Stage::kData;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (cancels) {
      end(batch, batch.requests[i],
          {MC_CANCELLED, "not sent, because a request of the batch failed"});
    } else {
      start(batch, static_cast<std::uint32_t>(i));
    }
  }
}

void Batches::start(Batch& batch, std::uint32_t index) {
  Request& request = batch.requests[index];
  if (batch.cancelled) {
    end(batch, request, status_of(Outcome::kCancelled));
    return;
  }
  EnginePeer* const peer = peers_.find(request.segment);
  if (peer == nullptr) {
    end(batch, request, {MC_INVALID_ARGUMENT, "no such segment is open"});
    return;
  }
  if (peer->state == EnginePeer::State::kReady) {
    route(batch, index, *peer);
    return;
  }
  wait_for_peer(batch, index, *peer);
  if (peer->state == EnginePeer::State::kUnknown) peers_.introduce(*peer, batch.deadline_ns);
}

void Batches::wait_for_peer(Batch& batch, std::uint32_t index, EnginePeer& peer) {
  batch.requests[index].state = State::kWaiting;
  hold(batch);
  ++waiting_;
  peer.waiting.push_back({slot_of(batch.id), index});
}

void Batches::on_peer_ready(const RequestRef& waiting) {
  Batch& batch = batch_at(waiting.slot);
  if (batch.requests[waiting.index].state == State::kWaiting) {
    --waiting_;
    start(batch, waiting.index);
  }
  leave(batch);
}

void Batches::on_peer_lost(const RequestRef& waiting, const Status& status) {
  Batch& batch = batch_at(waiting.slot);
  Request& request = batch.requests[waiting.index];
  if (request.state == State::kWaiting) {
    --waiting_;
    end(batch, request, status);
  }
  leave(batch);
}

void Batches::expire_waiting(std::uint64_t now) {
  const Status late(MC_TIMEOUT, "the peer was not found by the deadline");
  peers_.for_each([&](const EnginePeer& peer) {
    for (const RequestRef& waiting : peer.waiting) {
      Batch& batch = batch_at(waiting.slot);
      Request& request = batch.requests[waiting.index];
      if (request.state == State::kWaiting && now >= batch.deadline_ns) {
        cancel(batch, request, late);
      }
    }
  });
}

// REQUIRES: the peer is ready.
void Batches::route(Batch& batch, std::uint32_t index, EnginePeer& peer) {
  Request& request = batch.requests[index];
  if (!batch.is_note(index) && batch.check(index) == nullptr) {
    const MemoryRegistry::Registration* const own = memory_.find(request.local, request.size_bytes);
    const DirectoryEntry* entry = peer.directory.find(request.remote, request.size_bytes);
    const std::uint32_t needed = request.write ? MC_TRANSFER_WRITE : MC_TRANSFER_READ;
    if (entry == nullptr || (entry->rights & needed) == 0) {
      look_again(batch, index, peer,
                 entry == nullptr
                     ? Status(MC_INVALID_ARGUMENT,
                              "the peer has not registered that whole range in one piece")
                     : status_of(Outcome::kRefused));
      return;
    }
    // Registered memory stays until unregister_memory(), which waits for this request.
    const bool registered = own != nullptr && (request.write ? own->readable : own->writable);
    if (peer.same_host && !entry->by_owner_only()) {
      copier_.start(batch, index, *entry, peer, registered);
      return;
    }
    if (!registered && !is_memory(request.local, request.size_bytes, !request.write)) {
      end(batch, request,
          {MC_INVALID_ARGUMENT, "the local address is no memory of this process, or read-only"});
      return;
    }
  }
  if (!peers_.connect(peer)) {
    end(batch, request, peer.failure);
    return;
  }
  request.state = State::kOutgoing;
  hold(batch);
  outgoing_.push_back({slot_of(batch.id), index});
}

// The table may be older than the peer's registration, so read the table once more before an error.
void Batches::look_again(Batch& batch, std::uint32_t index, EnginePeer& peer,
                         const Status& otherwise) {
  Request& request = batch.requests[index];
  if (++request.looks >= kMaxLooks) {
    end(batch, request, otherwise);
    return;
  }
  wait_for_peer(batch, index, peer);
  peers_.read_table(peer);
}

// A request that failed meanwhile (cancelled, the peer lost, the range gone) ends here, but still
// becomes an operation, which the transport refuses. So every item leaves outgoing_ the same way.
void Batches::fill(const RequestRef& item, transport::Operation* operation,
                   transport::Piece* piece) {
  Batch& batch = batch_at(item.slot);
  Request& request = batch.requests[item.index];
  operation->cookie = (std::uint64_t{item.slot} << 32) | item.index;
  operation->deadline_ns = batch.deadline_ns;
  operation->priority = batch.priority;
  const EnginePeer* const peer = peers_.find(request.segment);
  const DirectoryEntry* entry = nullptr;
  Check* const check = batch.check(item.index);
  const bool is_data = check == nullptr && !batch.is_note(item.index);
  if (check != nullptr) {
    operation->verb = transport::Verb::kWrite;
    *piece = {reinterpret_cast<std::byte*>(&check->question), kCheckQuestionBytes};
  } else if (!is_data) {
    operation->verb = transport::Verb::kNotify;
    *piece = {batch.note.data(), batch.note.size()};
  } else {
    operation->verb = request.write ? transport::Verb::kWrite : transport::Verb::kRead;
    *piece = {request.local, request.size_bytes};
    if (peer != nullptr) entry = peer->directory.find(request.remote, request.size_bytes);
  }
  operation->pieces = {piece, 1};
  const bool lost = peer == nullptr || peer->transport_id == transport::kNoPeer;
  if (request.state == State::kOutgoing && (lost || (is_data && entry == nullptr))) {
    end(batch, request, lost && peer != nullptr ? peer->failure : status_of(Outcome::kStale));
  }
  if (request.state != State::kOutgoing) return;
  operation->peer = peer->transport_id;
  if (batch.is_note(item.index)) return;
  const auto region = transport_->import_region(
      peer->transport_id, is_data ? entry->descriptor : peer->engine_descriptor.checks);
  operation->region = region ? *region : 0;
  operation->offset_bytes = is_data ? request.remote - entry->address
                                    : (next_place_++ % kCheckPlaces) * kCheckQuestionBytes;
}

void Batches::send_outgoing() {
  while (!outgoing_.empty()) {
    std::array<transport::Operation, kSubmitAtOnce> operations;
    std::array<transport::Piece, kSubmitAtOnce> pieces;
    std::array<RequestRef, kSubmitAtOnce> items;
    std::size_t count = 0;
    for (; count < kSubmitAtOnce && count < outgoing_.size(); ++count) {
      items[count] = outgoing_[count];
      fill(items[count], &operations[count], &pieces[count]);
    }
    const std::size_t taken = transport_->submit({operations.data(), count}, now_ns());
    for (std::size_t i = 0; i < taken; ++i) {
      Request& request = batch_at(items[i].slot).requests[items[i].index];
      if (request.state == State::kOutgoing) {
        request.state = State::kFlying;
        request.operation = operations[i].id;
      }
      outgoing_.pop_front();
    }
    if (taken < count) return;
  }
}

// ---- Ends -------------------------------------------------------------------------------------

void Batches::on_completed(const transport::Event& event) {
  Batch& batch = batch_at(static_cast<std::uint32_t>(event.cookie >> 32));
  const auto index = static_cast<std::uint32_t>(event.cookie);
  Request& request = batch.requests[index];
  if (request.state != State::kEnded) {
    request.bytes = event.bytes;
    EnginePeer* const peer = peers_.find(request.segment);
    if (event.outcome == Outcome::kBusy && batch.check(index) != nullptr &&
        request.failing == MC_OK) {
      start(batch, index);  // another question was at that place
    } else if (event.outcome == Outcome::kStale && peer != nullptr && request.failing == MC_OK) {
      look_again(batch, index, *peer, status_of(event.outcome));
    } else if (event.outcome == Outcome::kCancelled) {
      // Either this engine cancelled the request, or the transport gave up the peer.
      end(batch, request,
          request.failing != MC_OK ? Status(request.failing) : status_of(Outcome::kPeerLost));
    } else {
      end(batch, request, status_of(event.outcome));
    }
  }
  leave(batch);
}

void Batches::on_copied(Batch& batch, std::uint32_t index, Outcome last) {
  Request& request = batch.requests[index];
  EnginePeer* const peer = peers_.find(request.segment);
  const bool ready = peer != nullptr && peer->state == EnginePeer::State::kReady;
  if (request.failing == MC_OK) {
    end(batch, request, {});
  } else if (request.stale && ready) {
    look_again(batch, index, *peer, status_of(Outcome::kStale));
  } else if (last == Outcome::kUnsupported && ready && peer->same_host) {
    // A security policy changed: this request and all later requests go over TCP.
    peer->same_host.reset();
    route(batch, index, *peer);
    send_outgoing();
    loop_.nudge();
  } else if (last == Outcome::kPeerLost && peer != nullptr) {
    const Status gone(MC_AGENT_UNAVAILABLE, "the peer's process is gone");
    end(batch, request, gone);
    peers_.lose(*peer, gone);
  } else {
    end(batch, request,
        last != Outcome::kDone ? transport::to_status(last) : Status(request.failing));
  }
}

void Batches::on_copy_stopped(Batch& batch, Request& request, const Status& status) {
  cancel(batch, request, status);
}

void Batches::end(Batch& batch, Request& request, const Status& given) {
  Status status = given;
  request.state = State::kEnded;
  request.status = status.code();
  if (request.staged) {
    if (Status left = devices_.unstage(request); !left.ok()) status = left;
    request.status = status.code();
  }
  if (status.ok()) request.bytes = request.size_bytes;
  --batch.open;
  --batch.stage_open;
  const auto index = static_cast<std::size_t>(&request - batch.requests.data());
  if (const Check* const check = batch.check(index); check != nullptr && !status.ok()) {
    Request& written = batch.requests[check->of];
    written.status = status.code();
    written.bytes = 0;
  }
  if (!status.ok() && !batch.failed) {
    batch.failed = true;
    // cancel() may have stored the reason already.
    if (batch.first_failure.code() != status.code()) batch.first_failure = status;
  }
  if (batch.stage_open == 0 && batch.open > 0) {
    start_from(batch, static_cast<Batch::Stage>(static_cast<std::uint8_t>(batch.stage) + 1));
    // Copies end in threads that do not drive.
    send_outgoing();
    loop_.nudge();
    return;
  }
  batch.changed.notify_all();
}

void Batches::cancel(Batch& batch, Request& request, const Status& status) {
  if (!batch.failed) batch.first_failure = status;
  request.failing = status.code();
  switch (request.state) {
    case State::kNew:  // a notification; the other cancelled requests fail the batch
    case State::kEnded:
      return;
    case State::kWaiting:
      --waiting_;
      end(batch, request, status);
      return;
    case State::kOutgoing:
      end(batch, request, status);
      return;
    case State::kFlying:
      transport_->cancel(request.operation);
      loop_.nudge();
      return;
    case State::kCopying:
      request.taken_bytes = request.size_bytes;
      if (request.chunks_open == 0) end(batch, request, status);
      return;
  }
}

void Batches::cancel(Batch& batch, const Status& status) {
  hold(batch);
  batch.cancelled = true;
  for (Request& request : batch.requests) cancel(batch, request, status);
  leave(batch);
}

void Batches::cancel_segment(mc_transfer_segment segment, const Status& status) {
  for_each_open([&](Batch& batch) {
    for (Request& request : batch.requests) {
      if (request.segment == segment) cancel(batch, request, status);
    }
  });
}

std::vector<std::uint32_t> Batches::cancel_local(Batch& batch, const std::byte* data,
                                                 std::uint64_t size_bytes, const Status& status) {
  std::vector<std::uint32_t> hit;
  for (std::uint32_t i = 0; i < batch.requests.size(); ++i) {
    Request& request = batch.requests[i];
    if (request.state == State::kEnded || request.local == nullptr ||
        request.callers() >= data + size_bytes || request.callers() + request.size_bytes <= data) {
      continue;
    }
    hit.push_back(i);
    cancel(batch, request, status);
  }
  return hit;
}

}  // namespace mc::transfer
