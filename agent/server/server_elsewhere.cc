// SPDX-License-Identifier: Apache-2.0
//
// Staged puts without room on this host, in the pool or under its capacity: another host of the
// cluster must hold the object. The agent first evicts cold objects, which costs no other host
// anything. The agent also waits a moment for objects that are about to leave. If no room can
// appear, the agent does not wait.
//
//   no room ──► summed, a part a turn ──► RemoteRequest::kPlace ──► held there: done
//      ▲                                        └──► refused: tried here again, then there,
//      └──────────────────────────────────────────── until the deadline
#include <algorithm>

#include "agent/server/server.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

// Longest wait for room on this host: a fraction of the time left, and at most kMostLocalNs.
constexpr std::uint64_t kLocalShare = 4;
constexpr std::uint64_t kMostLocalNs = 250 * kMs;
constexpr std::uint64_t kAskAgainNs = 200 * kMs;
constexpr std::uint64_t kSumStepBytes = 4ull << 20;  // summed in a single turn

}  // namespace

bool Server::may_go_elsewhere(Work& work, ObjectStore::Reserve result) {
  if (cluster_ == nullptr || !work.session->tenant->clustered) return false;
  const std::uint64_t now = now_ns();
  if (work.begun_ns == 0) work.begun_ns = now;
  if (now < work.elsewhere.next_ns) return false;
  if (result == ObjectStore::Reserve::kTooLarge) return work.elsewhere.next_ns == 0;
  const bool hopeless =
      result == ObjectStore::Reserve::kWait && !work.session->tenant->store->room_may_come();
  const std::uint64_t deadline_ns = work.request.deadline_ns;
  const std::uint64_t left_ns = deadline_ns > work.begun_ns ? deadline_ns - work.begun_ns : 0;
  return hopeless || now >= work.begun_ns + std::min(left_ns / kLocalShare, kMostLocalNs);
}

// True if an object of this size must lie in stripes on several hosts.
bool Server::goes_in_stripes(const Work& work, std::uint64_t bytes) const {
  return cluster_ != nullptr && work.session->tenant->clustered && cluster_->in_stripes(bytes);
}

// Returns false if the live objects leave no room under capacity_bytes and another host may be
// asked. The pool itself may have room.
bool Server::capacity_for(const Work& work, std::uint64_t bytes) {
  const Tenant& tenant = *work.session->tenant;
  return cluster_ == nullptr || !tenant.clustered || bytes > tenant.store->capacity_bytes() ||
         tenant.store->make_room(bytes);
}

// REQUIRES: item_is_sound().
Server::Step Server::place_elsewhere(Work& work) {
  Session& session = *work.session;
  const shm::PutItem& fields = work.item.fields;
  Elsewhere& elsewhere = work.elsewhere;
  const std::string_view key{reinterpret_cast<const char*>(work.item.key), fields.key_bytes};
  if (elsewhere.summed_bytes == 0) elsewhere.sum = session.tenant->store->index().hash(key);
  const std::uint64_t step = std::min(fields.length - elsewhere.summed_bytes, kSumStepBytes);
  elsewhere.sum = checksum(
      elsewhere.sum, session.staging() + fields.staging_offset + elsewhere.summed_bytes, step);
  elsewhere.summed_bytes += step;
  if (elsewhere.summed_bytes < fields.length) return Step::kAgain;

  const auto remote_request = std::make_shared<RemoteRequest>();
  remote_request->kind = RemoteRequest::Kind::kPlace;
  remote_request->tenant = session.tenant;
  remote_request->deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now_ns() + MC_MAX_TIMEOUT_NS);
  remote_request->source = {session.id, &session.staging_file(), fields.staging_offset,
                            order_of(work.item, work.request)};
  remote_request->source.order.key = {};
  remote_request->source.order.checksum = elsewhere.sum;
  RemoteRequest::Item item;
  item.key = key;
  remote_request->items.push_back(std::move(item));
  elsewhere.summed_bytes = 0;
  elsewhere.remote_request = remote_request;
  cluster_->begin(remote_request, now_ns());
  return Step::kWait;
}

// Returns true if another host was asked. The question is open while work.elsewhere.remote_request
// is set.
bool Server::take_placed(Work& work, mc_status& status) {
  Elsewhere& elsewhere = work.elsewhere;
  if (!elsewhere.remote_request) return false;
  if (!elsewhere.remote_request->over()) return true;
  status = elsewhere.remote_request->items.front().status;
  elsewhere.remote_request.reset();
  elsewhere.next_ns = now_ns() + kAskAgainNs;
  return true;
}

}  // namespace mc::agent
