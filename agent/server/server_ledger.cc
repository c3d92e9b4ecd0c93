// SPDX-License-Identifier: Apache-2.0
//
// The session's ledger of reservations. A reservation goes back alone, with the end of the session,
// or because the client never received the answer that named the reservation.
#include <algorithm>

#include "agent/server/server.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

[[gnu::hot]] std::uint32_t Server::named_entry(const Session& session, const shm::PutItem& fields) {
  const ObjectStore& store = *session.tenant->store;
  const bool other = store.is_reserved_by(session.id, fields.entry) &&
                     store.generation_of(fields.entry) != fields.generation;
  return other ? kNoEntry : fields.entry;
}

bool Server::give_back(Session& session, std::uint32_t entry) {
  ObjectStore& store = *session.tenant->store;
  if (!store.is_reserved_by(session.id, entry)) return false;
  const std::uint64_t bytes = store.reserved_length(entry);
  store.abandon(session.id, entry);
  drop_from_ledger(session, entry, bytes);
  return true;
}

std::uint64_t Server::reserved_in_tail_bytes(const Session& session) {
  const ObjectStore& store = *session.tenant->store;
  std::uint64_t bytes = 0;
  for (const std::uint32_t entry : session.reserved) bytes += store.tail_bytes(entry);
  return bytes;
}

void Server::expect_repeats(Session& session) {
  session.unheard.clear();
  for (const std::uint32_t entry : session.reserved) {
    const GrantedTo to = session.tenant->store->granted_to(entry);
    session.unheard[{to.channel, to.request_id}].push_back(entry);
  }
}

void Server::take_back_unheard(Session& session, std::uint32_t channel, std::uint64_t request_id) {
  const auto found = session.unheard.find({channel, request_id});
  if (found == session.unheard.end()) return;
  const ObjectStore& store = *session.tenant->store;
  for (const std::uint32_t entry : found->second) {
    // The client may have used or returned the entry since then, and the entry may be granted
    // again.
    const bool same = store.is_reserved_by(session.id, entry) &&
                      store.granted_to(entry) == GrantedTo{channel, request_id};
    if (same) give_back(session, entry);
  }
  session.unheard.erase(found);
}

void Server::forget(const Session& session) {
  std::erase_if(answered_, [&](const Answered& answered) { return answered.session == &session; });
  for (std::list<Work>* const list : {&waiting_, &away_}) {
    for (auto it = list->begin(); it != list->end();) {
      if (it->session != &session) {
        ++it;
        continue;
      }
      give_back_copy(*it);
      it = stop_waiting(*list, it);
    }
  }
}

void Server::release(Session& session) {
  forget(session);
  if (cluster_ != nullptr) cluster_->forget_session(session.id);
  session.unheard.clear();
  for (const std::uint32_t entry : session.reserved) {
    session.tenant->store->abandon(session.id, entry);
    MC_FAILPOINT("session.release_one");
  }
  session.reserved.clear();
  session.reserved_bytes = 0;
}

}  // namespace mc::agent
