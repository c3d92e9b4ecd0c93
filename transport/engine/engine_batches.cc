// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that takes batches and brings their requests to an end.
#include <algorithm>
#include <array>

#include "libmc/base/clock.h"
#include "transport/engine/engine.h"
#include "transport/engine/local/local_memory.h"

namespace mc::transfer {

namespace {

using transport::Outcome;
using State = Request::State;

constexpr std::size_t kSubmitAtOnce = 64;
constexpr std::uint8_t kMaxLooks = 2;
// Past its deadline a request ends when its lanes are cut, at the latest.
constexpr std::uint64_t kGraceNs = 2'000'000'000;
constexpr int kMaxGraces = 5;

Status status_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStale:
      return {MC_NOT_FOUND, "the peer unregistered that memory while it was transferred"};
    case Outcome::kRefused:
      return {MC_PERMISSION_DENIED, "the peer did not register that memory for such access"};
    case Outcome::kUnsupported:
      return {MC_UNSUPPORTED, "the driver of the peer's device refused to copy"};
    case Outcome::kInvalid:
      return {MC_INVALID_ARGUMENT, "there is no such memory, here or at the peer"};
    case Outcome::kPeerLost:
      return {MC_AGENT_UNAVAILABLE, "the peer answers no more; is its process alive?"};
    default:
      return transport::to_status(outcome);
  }
}

}  // namespace

// ---- Handles ----------------------------------------------------------------------------------

Batch* Engine::find_batch(mc_transfer_batch id) {
  const std::uint32_t slot = slot_of(id);
  return id != 0 && slot < batches_.size() && batches_[slot] && batches_[slot]->id == id &&
                 !batches_[slot]->freed
             ? batches_[slot].get()
             : nullptr;
}

void Engine::leave(Batch& batch) {
  if (--batch.users > 0 || !batch.freed) return;
  const std::uint32_t slot = slot_of(batch.id);
  free_batches_.push_back(slot);
  batches_[slot].reset();
}

Result<mc_transfer_batch> Engine::submit(std::span<const mc_transfer_request> requests,
                                         const SubmitOptions& options) {
  if ((requests.empty() && options.notify == 0) || requests.size() > MC_MAX_TRANSFER_REQUESTS) {
    return fail(MC_INVALID_ARGUMENT,
                "a batch has 1 to 1048576 requests (MC_MAX_TRANSFER_REQUESTS)");
  }
  if (options.note_name.size() + options.note_message.size() > MC_MAX_TRANSFER_NOTE_BYTES) {
    return fail(MC_INVALID_ARGUMENT,
                "a notification has at most 4088 bytes (MC_MAX_TRANSFER_NOTE_BYTES)");
  }
  auto made = std::make_unique<Batch>();
  made->notifies = options.notify != 0;
  made->requests.reserve(requests.size() + 1);
  for (const mc_transfer_request& request : requests) {
    Request row;
    row.write = request.verb == MC_TRANSFER_PUT;
    row.local = static_cast<std::byte*>(request.local);
    row.segment = request.segment;
    row.remote = request.remote;
    row.size_bytes = request.size;
    const bool known = request.verb == MC_TRANSFER_PUT || request.verb == MC_TRANSFER_GET;
    if (!known || row.local == nullptr || row.size_bytes == 0 ||
        row.size_bytes > MC_MAX_OBJECT_BYTES || row.size_bytes > ~std::uint64_t{0} - row.remote) {
      return fail(MC_INVALID_ARGUMENT,
                  "a request has a verb, local memory, and 1 B to 1 TiB at a remote address");
    }
    made->requests.push_back(std::move(row));
  }
  if (Status staged = stage(*made); !staged.ok()) return fail(staged);
  if (made->notifies) {
    made->note = encode_notification(options.note_name, options.note_message);
    Request row;
    row.segment = options.notify;
    made->requests.push_back(std::move(row));
  }
  made->open = made->requests.size();
  made->deadline_ns =
      now_ns() + (options.timeout_ns != 0 ? options.timeout_ns : options_.timeout_ns);

  Lock lock = lock_in();
  std::uint32_t slot = 0;
  if (!free_batches_.empty()) {
    slot = free_batches_.back();
    free_batches_.pop_back();
  } else {
    if (batches_.size() >= MC_MAX_TRANSFER_BATCHES) {
      return fail(MC_BUSY,
                  "65536 batches are open (MC_MAX_TRANSFER_BATCHES); free those that ended");
    }
    slot = static_cast<std::uint32_t>(batches_.size());
    batches_.emplace_back();
    batch_generations_.push_back(0);
  }
  Batch& batch = *made;
  batch.id = (std::uint64_t{++batch_generations_[slot]} << 32) | (slot + 1);
  batches_[slot] = std::move(made);
  ++batch.users;
  batch.submitting = true;
  for (std::uint32_t i = 0; i < requests.size(); ++i) start(batch, i);
  if (requests.empty()) start(batch, 0);  // a notification alone
  batch.submitting = false;
  send_outgoing();
  // By weight: one for what is worth a second thread.
  double copies = 0;
  for (const std::uint32_t i : batch.copies) {
    const Request& request = batch.requests[i];
    copies += static_cast<double>(request.size_bytes) / static_cast<double>(request.share_bytes());
  }
  if (copies > 0 && (!options.waits || copies >= 1)) wake_copier(batch);
  // Who waits drives at once; a second thread would only be in its way.
  if (!options.waits) nudge();
  const std::uint64_t id = batch.id;
  leave(batch);
  return id;
}

// ---- Where a request goes ---------------------------------------------------------------------

void Engine::start(Batch& batch, std::uint32_t index) {
  Request& request = batch.requests[index];
  if (batch.cancelled) {
    end(batch, request, Outcome::kCancelled);
    return;
  }
  Peer* const peer = find_peer(request.segment);
  if (peer == nullptr) {
    end(batch, request, {MC_INVALID_ARGUMENT, "no such segment is open"});
    return;
  }
  if (peer->state == Peer::State::kReady) {
    route(batch, index, *peer);
    return;
  }
  wait_for_peer(batch, index, *peer);
  if (peer->state != Peer::State::kUnknown) return;
  peer->patient_until_ns = batch.deadline_ns;
  introduce(*peer);
}

void Engine::wait_for_peer(Batch& batch, std::uint32_t index, Peer& peer) {
  batch.requests[index].state = State::kWaiting;
  ++batch.users;
  ++waiting_;
  peer.waiting.push_back({slot_of(batch.id), index});
}

// REQUIRES: the peer is ready.
void Engine::route(Batch& batch, std::uint32_t index, Peer& peer) {
  Request& request = batch.requests[index];
  const bool is_note = batch.notifies && index + 1 == batch.requests.size();
  if (!is_note) {
    const DirectoryEntry* entry = peer.directory.find(request.remote, request.size_bytes);
    const std::uint32_t needed = request.write ? MC_TRANSFER_WRITE : MC_TRANSFER_READ;
    if (entry == nullptr || (entry->rights & needed) == 0) {
      look_again(batch, index, peer,
                 entry == nullptr
                     ? Status(MC_INVALID_ARGUMENT,
                              "the peer has not registered all of that range, or not in one piece")
                     : status_of(Outcome::kRefused));
      return;
    }
    if (peer.same_host && !entry->by_owner_only()) {
      start_copying(batch, index, *entry, peer);
      return;
    }
  }
  if (!is_note && region_of(request.local, request.size_bytes) == nullptr &&
      !is_memory(request.local, request.size_bytes, !request.write)) {
    end(batch, request,
        {MC_INVALID_ARGUMENT, "the local address is no memory of this process, or read-only"});
    return;
  }
  if (!connect(peer)) {
    end(batch, request, peer.failure);
    return;
  }
  request.state = State::kOutgoing;
  ++batch.users;
  outgoing_.push_back({slot_of(batch.id), index});
}

// Our table may be older than the peer's memory: one more look before it is an error.
void Engine::look_again(Batch& batch, std::uint32_t index, Peer& peer, const Status& otherwise) {
  Request& request = batch.requests[index];
  if (++request.looks >= kMaxLooks) {
    end(batch, request, otherwise);
    return;
  }
  wait_for_peer(batch, index, peer);
  look_at_table(peer);
}

void Engine::send_outgoing() {
  while (!outgoing_.empty()) {
    std::array<transport::Operation, kSubmitAtOnce> operations;
    std::array<transport::Piece, kSubmitAtOnce> pieces;
    std::array<Item, kSubmitAtOnce> items;
    std::size_t count = 0;
    for (const Item& item : outgoing_) {
      if (count == kSubmitAtOnce) break;
      Batch& batch = *batches_[item.slot];
      Request& request = batch.requests[item.index];
      transport::Operation operation;
      operation.cookie = (std::uint64_t{item.slot} << 32) | item.index;
      operation.deadline_ns = batch.deadline_ns;
      const bool is_note = batch.notifies && item.index + 1 == batch.requests.size();
      const Peer* const peer = find_peer(request.segment);
      if (is_note) {
        operation.verb = transport::Verb::kNotify;
        pieces[count] = {batch.note.data(), batch.note.size()};
      } else {
        operation.verb = request.write ? transport::Verb::kWrite : transport::Verb::kRead;
        pieces[count] = {request.local, request.size_bytes};
      }
      const DirectoryEntry* entry = is_note || peer == nullptr
                                        ? nullptr
                                        : peer->directory.find(request.remote, request.size_bytes);
      // What is wrong meanwhile (cancelled, the peer lost, the range gone) becomes an operation
      // that fails, so that every item takes the same way out.
      const bool lost = peer == nullptr || peer->transport_id == transport::kNoPeer;
      if (request.state == State::kOutgoing && (lost || (!is_note && entry == nullptr))) {
        end(batch, request, lost && peer != nullptr ? peer->failure : status_of(Outcome::kStale));
      }
      const bool valid = request.state == State::kOutgoing;
      if (valid) operation.peer = peer->transport_id;
      if (valid && !is_note) {
        const auto region = transport_->import_region(peer->transport_id, entry->descriptor);
        operation.region = region ? *region : 0;
        operation.offset_bytes = request.remote - entry->address;
      }
      items[count] = item;
      operation.pieces = {&pieces[count], 1};
      operations[count++] = operation;
    }
    const std::size_t taken = transport_->submit({operations.data(), count}, now_ns());
    for (std::size_t i = 0; i < taken; ++i) {
      Batch& batch = *batches_[items[i].slot];
      Request& request = batch.requests[items[i].index];
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

void Engine::on_request(const transport::Event& event) {
  if ((event.cookie & kTableCookie) != 0) {
    const auto slot = static_cast<std::uint32_t>(event.cookie);
    Peer* const peer = slot < peers_.size() ? peers_[slot].get() : nullptr;
    // One that was closed or lost meanwhile has another transport's id, or none.
    if (peer != nullptr && peer->transport_id == event.peer) on_table_bytes(*peer, event.outcome);
    return;
  }
  Batch& batch = *batches_[event.cookie >> 32];
  const auto index = static_cast<std::uint32_t>(event.cookie);
  Request& request = batch.requests[index];
  if (request.state != State::kEnded) {
    request.bytes = event.bytes;
    Peer* const peer = find_peer(request.segment);
    if (event.outcome == Outcome::kStale && peer != nullptr && request.failing == MC_OK) {
      look_again(batch, index, *peer, status_of(event.outcome));
    } else if (event.outcome == Outcome::kCancelled) {
      // By us; else its peer was given up.
      end(batch, request,
          request.failing != MC_OK ? Status(request.failing) : status_of(Outcome::kPeerLost));
    } else {
      end(batch, request, event.outcome);
    }
  }
  leave(batch);
}

void Engine::end(Batch& batch, Request& request, Outcome outcome) {
  end(batch, request, status_of(outcome));
}

void Engine::end(Batch& batch, Request& request, const Status& given) {
  Status status = given;
  request.state = State::kEnded;
  request.status = status.code();
  if (request.staged) {
    if (Status left = unstage(request); !left.ok()) status = left;
    request.status = status.code();
  }
  if (status.ok()) request.bytes = request.size_bytes;
  --batch.open;
  if (!status.ok() && !batch.failed) {
    batch.failed = true;
    // A cancel has said why already.
    if (batch.first_failure.code() != status.code()) batch.first_failure = status;
  }
  Request& note = batch.requests.back();
  if (batch.notifies && batch.open == 1 && note.state == State::kNew) {
    if (batch.failed) {
      end(batch, note, {MC_CANCELLED, "not sent, since a request of the batch failed"});
    } else {
      start(batch, static_cast<std::uint32_t>(batch.requests.size() - 1));
      // Copies end in threads that do not drive.
      send_outgoing();
      nudge();
    }
    return;
  }
  batch.changed.notify_all();
}

// It ends now if nothing touches its memory, else as soon as nothing does.
void Engine::cancel(Batch& batch, Request& request, const Status& status) {
  if (!batch.failed) batch.first_failure = status;
  request.failing = status.code();
  switch (request.state) {
    case State::kNew:  // a notification whose batch fails by what else was cancelled
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
      nudge();
      return;
    case State::kCopying:
      request.taken_bytes = request.size_bytes;
      if (request.chunks_open == 0) end(batch, request, status);
      return;
    case State::kEnded:
      return;
  }
}

// ---- What callers ask -------------------------------------------------------------------------

Status Engine::poll(mc_transfer_batch id, bool* ended, mc_transfer_status* statuses,
                    std::size_t count) {
  Lock lock = lock_in();
  Batch* const batch = find_batch(id);
  if (batch == nullptr) return {MC_INVALID_ARGUMENT, "no such batch; it may have been freed"};
  if (!batch->ended() && !driven_) step(now_ns());
  *ended = batch->ended();
  const std::size_t given = batch->requests.size() - (batch->notifies ? 1 : 0);
  if (statuses == nullptr) return {};
  if (count < given) return {MC_INVALID_ARGUMENT, "statuses needs room for every request"};
  for (std::size_t i = 0; i < given; ++i) {
    const Request& request = batch->requests[i];
    const bool over = request.state == State::kEnded;
    statuses[i] = {request.status, over ? 1u : 0u, over ? request.bytes : 0};
  }
  return {};
}

Status Engine::wait(mc_transfer_batch id, std::uint64_t timeout_ns) {
  Lock lock = lock_in();
  Batch* const batch = find_batch(id);
  if (batch == nullptr) return {MC_INVALID_ARGUMENT, "no such batch; it may have been freed"};
  const std::uint64_t deadline_ns =
      timeout_ns != 0 ? now_ns() + timeout_ns : batch->deadline_ns + kGraceNs;
  ++batch->users;
  copy_all(lock, *batch, deadline_ns);
  const bool in_time =
      wait_until(lock, batch->changed, deadline_ns, [&] { return batch->ended(); });
  Status status = !in_time        ? Status(MC_TIMEOUT, "the batch has not ended yet")
                  : batch->failed ? batch->first_failure
                                  : Status();
  leave(*batch);
  return status;
}

Status Engine::cancel(mc_transfer_batch id) {
  Lock lock = lock_in();
  Batch* const batch = find_batch(id);
  if (batch == nullptr) return {MC_INVALID_ARGUMENT, "no such batch; it may have been freed"};
  ++batch->users;
  batch->cancelled = true;
  const Status why(MC_CANCELLED, "the batch was cancelled");
  for (Request& request : batch->requests) cancel(*batch, request, why);
  leave(*batch);
  return {};
}

Status Engine::free(mc_transfer_batch id) {
  Lock lock = lock_in();
  Batch* const batch = find_batch(id);
  if (batch == nullptr) return {MC_INVALID_ARGUMENT, "no such batch; it may have been freed"};
  if (!batch->ended()) return {MC_BUSY, "the batch has not ended; cancel it and wait first"};
  batch->freed = true;
  ++batch->users;
  leave(*batch);
  return {};
}

Status Engine::finish(mc_transfer_batch id) {
  Status waited = wait(id, 0);
  // Past its deadline it ends as soon as nothing touches its memory; the caller gets that back now.
  for (int tries = 0; free(id).code() == MC_BUSY; ++tries) {
    if (tries == kMaxGraces) return {MC_INTERNAL, "a batch did not end after its deadline"};
    waited = wait(id, kGraceNs);
  }
  return waited;
}

bool Engine::take_notification(Notification* notification) {
  Lock lock = lock_in();
  if (notifications_.empty() && !driven_) step(now_ns());
  if (notifications_.empty()) return false;
  *notification = std::move(notifications_.front());
  notifications_.pop_front();
  return true;
}

}  // namespace mc::transfer
