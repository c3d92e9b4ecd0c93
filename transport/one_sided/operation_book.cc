// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/operation_book.h"

namespace mc::transport::one_sided {

void OperationBook::end(OperationState& operation, Outcome outcome) {
  events_.push_back(ended(operation, outcome));
  if (OneSidedPeer* peer = peers_.find(operation.peer)) {
    --peer->open_operations;
    if (operation.verb == Verb::kNotify) backend_.on_notice_ended(*peer, operation.id);
  }
  operations_.close(operation);
}

void OperationBook::give_up(OperationState& operation, Outcome outcome) {
  if (operation.slices_out == 0) {
    end(operation, operation.failure == Outcome::kDone ? outcome : operation.failure);
  } else if (operation.failure == Outcome::kDone) {
    operation.failure = outcome;
  }
}

void OperationBook::end_all_of(PeerId peer, Outcome outcome) {
  for (OperationState& operation : operations_.slots()) {
    if (operation.id == kNoOperation || operation.peer != peer) continue;
    end(operation, operation.failure == Outcome::kDone ? outcome : operation.failure);
  }
}

void OperationBook::on_slices(OperationId id, std::uint32_t count, std::uint64_t bytes,
                              Outcome outcome) {
  OperationState* operation = operations_.find(id);
  if (operation == nullptr) return;
  operation->slices_out -= count;
  if (outcome == Outcome::kDone) {
    operation->done_bytes += bytes;
    if (operation->verb == Verb::kRead) counters_.read_bytes += bytes;
    if (operation->verb == Verb::kWrite) counters_.written_bytes += bytes;
  }
  if (operation->done_bytes == operation->size_bytes) {
    end(*operation, Outcome::kDone);
  } else if (outcome != Outcome::kDone) {
    give_up(*operation, outcome);
  } else if (operation->failure != Outcome::kDone && operation->slices_out == 0) {
    end(*operation, operation->failure);
  }
}

void OperationBook::expire(std::uint64_t now_ns) {
  next_deadline_ns_ = operations_.expire(now_ns, [&](OperationState& operation) {
    const OperationId id = operation.id;
    const PeerId peer = operation.peer;
    give_up(operation, Outcome::kTimedOut);
    if (operations_.find(id) != nullptr) {
      backend_.abandon_lanes_of(*peers_.find(peer), id, now_ns);
    }
  });
}

void OperationBook::tell(Event::Kind kind, PeerId peer) {
  Event event;
  event.kind = kind;
  event.peer = peer;
  events_.push_back(event);
}

}  // namespace mc::transport::one_sided
