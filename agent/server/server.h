// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of the rings. The server takes requests, executes the requests on
//   the session's ObjectStore, and answers each request exactly once. A request without room waits
//   here until room appears, its deadline passes, or its client cancels.
// Threads: the agent's loop.
// Owns: the waiting requests.
// Trusts: nothing; every record and argument is copied, then checked.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "agent/server/remote_request.h"
#include "agent/server/request_counters.h"
#include "agent/server/session.h"
#include "agent/server/work.h"
#include "shm/messages.h"

namespace mc::agent {

class Server {
 public:
  // Null: this agent has no cluster.
  void set_cluster(Cluster* cluster) { cluster_ = cluster; }
  // Null: this agent has no tier on disks.
  void set_disks(LocalDisks* disks) { disks_ = disks; }
  // Serves up to kTurn requests of a channel. Returns true if there were any.
  bool serve(Session& session, std::uint32_t channel);
  // Retries the waiting requests, and ends the requests past their deadline.
  void retry_waiting(std::uint64_t now_ns);
  bool anything_waits() const { return !waiting_.empty(); }
  // Answers the requests that the cluster has completed, and the remote requests past their
  // deadline.
  void finish_remote_requests(std::uint64_t now_ns);
  bool anything_away() const { return !away_.empty(); }
  // True if a waiting request could continue at once and only yielded its turn.
  bool wants_turn() const { return wants_turn_; }
  // Channels with new completions. The loop wakes the clients, then clears the list. The list also
  // names sleeping channels, since a request may have waited for long.
  struct Answered {
    Session* session;
    std::uint32_t channel;
  };
  std::vector<Answered>& answered() { return answered_; }
  // Drops all requests of the session's rings, because the rings restart or the session ends.
  void forget(const Session& session);
  // Gives back everything that the session held. REQUIRES: the process has ended or said goodbye.
  void release(Session& session);
  const RequestCounters& counters() const { return counters_; }

 private:
  enum class Step { kDone, kWait, kAgain, kAway };
  static mc_status status_of(ObjectStore::Put put);
  static Step waiting_step(ObjectStore::Reserve result);

  void start(Session& session, std::uint32_t channel, const shm::Request& request);
  Step proceed(Work& work);
  Step put(Work& work);
  void prefetch_items(const Work& work);
  Step put_group(Work& work);
  Step publish_group(Work& work, std::vector<PutOrder>& orders);
  void end_group(Work& work, mc_status status, std::size_t failed);
  Step reserve(Work& work);
  void abandon(Work& work);
  Step remove(Work& work);
  Step ask_elsewhere(Work& work, RemoteRequest::Kind kind);
  ObjectStore::Put publish(Work& work, const PutOrder& order);
  void note_put(Work& work, const PutOrder& order, ObjectStore::Put result);
  Step finish_put(Work& work);
  void forget_earlier(Work& work, const PutOrder& order, ObjectStore::Put result);
  static void await_replicas(Work& work, const PutOrder& order);
  Step send_away(Work& work);
  // Puts with bytes in staging.
  Step put_staged(Work& work);
  Step put_staged_group(Work& work);
  void end_waiting(Work& work, mc_status status, mc_status unfinished);
  void end_late(Work& work);
  Step begin_copy(Work& work, mc_status& failure);
  Step copy_part(Work& work);
  Step copy_staged(Work& work);
  void give_back_copy(Work& work);
  // Objects for other hosts: without room here, or by the client's choice.
  bool wants_host(const Work& work) const;
  bool may_go_elsewhere(Work& work, std::uint64_t bytes, ObjectStore::Reserve result);
  bool goes_in_stripes(const Work& work, std::uint64_t bytes) const;
  bool capacity_for(const Work& work, std::uint64_t bytes);
  Step place_elsewhere(Work& work);
  bool take_placed(Work& work, mc_status& status);
  Step finish_remote_request(Work& work);
  void cut_short(Work& work, mc_status status);
  Step set_pin(Work& work);
  mc_status cancel(const Session& session, std::uint32_t channel, std::uint64_t request_id);

  void complete(Work& work, mc_status status);
  void refill(Work& work, std::uint64_t bytes, shm::ItemResult& result);
  ObjectStore::Reserve grant(Work& work, std::uint64_t bytes, bool evict, std::uint32_t& entry);
  using Waiting = std::list<Work>::iterator;
  Waiting stop_waiting(std::list<Work>& list, Waiting at);

  Cluster* cluster_ = nullptr;
  LocalDisks* disks_ = nullptr;
  std::list<Work> waiting_;  // for room
  std::list<Work> away_;     // for the cluster or the disks
  bool wants_turn_ = false;
  std::uint64_t turn_ = 1;
  std::vector<Answered> answered_;
  RequestCounters counters_;
};

}  // namespace mc::agent
