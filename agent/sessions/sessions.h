// SPDX-License-Identifier: Apache-2.0
//
// The sessions of all clients: begins, resumes and ends a session, and takes over the
//   sessions of the previous agent. The pidfd of a session's process and the client's beacon report
//   the end of a client.
// Threads: the agent's loop. The beacons' thread only reports suspicions.
// Owns: the sessions, and the watches of their pidfds and bells.
// Trusts: Control has checked the peer's user; the secret of a resumed session is checked here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/keeper/kept_files.h"
#include "agent/loop/event_loop.h"
#include "agent/options/options.h"
#include "agent/server/server.h"
#include "agent/server/session.h"
#include "agent/sessions/active_channels.h"
#include "agent/sessions/node_state.h"
#include "libmc/base/mutex.h"
#include "shm/beacon.h"

namespace mc::agent {

class Sessions {
 public:
  using Table = std::map<std::uint64_t, std::unique_ptr<Session>>;
  using FindTenant = std::function<std::shared_ptr<Tenant>(const std::string& name)>;

  // Begins the release of a session's memory by others. True: no other uses the memory. False: done is
  // called when no other uses the memory any more.
  using Release = std::function<bool(std::uint64_t id, std::function<void()> done)>;
  // wake: signalled by a suspicion; the loop then calls handle_suspicions().
  Sessions(const Options& options, NodeState& node, KeptFiles& kept, EventLoop& events,
           Server& server, int wake, Release release);
  ~Sessions();

  const Table& all() const { return sessions_; }
  // Null for an unknown session.
  Session* find(std::uint64_t id) const;
  ActiveChannels& channels() { return channels_; }
  // Appends the pins of all sessions of a namespace.
  void collect_pins(const std::string& tenant, std::vector<std::uint64_t>& pins) const;

  // Begins a session of this peer. Errors: MC_BUSY beyond the limits, MC_NO_MEMORY, and those of the
  // descriptor store, which must keep the session for the next agent.
  Result<Session*> begin(const PeerCredentials& peer, int socket, std::shared_ptr<Tenant> tenant,
                         std::uint32_t channel_count, const std::string& label);
  // Restarts the rings of a session whose client has come back.
  void resume(Session& session, const std::string& label);
  // Sends the welcome with the descriptors of the session.
  Status welcome(Session& session, int socket, bool resumed);
  Status open_channel(Session& session, std::uint64_t number);
  // Errors: MC_NO_MEMORY, MC_QUOTA_EXCEEDED, and those of the descriptor store.
  Status open_staging(Session& session, std::uint64_t bytes);
  // kLost: the process has ended, and its contribution to the pool stays for keep_seconds.
  enum class End : std::uint8_t { kGoodbye, kLost };
  // Gives back everything that the session held, when no worker of a device uses it any more.
  // REQUIRES: the process has ended or the client said goodbye.
  void end(std::uint64_t id, End how);
  void handle_suspicions();
  // Ends the sessions that a process left by exec: the process goes on, but no program of the
  // process knows the session.
  void end_left(std::uint64_t now);
  // Passes the reads that clients have noted to the policies (unless options.repeatable), and the
  // clients' counts of reads to the namespaces. If the clients have many channels or notes, a call
  // takes a part, and the next call goes on behind that part.
  void take_notes();

  // ---- Restart
  // Takes over the sessions of the previous agent.
  void adopt(KeptDescriptors& kept);
  // True if the session exists and belongs to this namespace.
  bool belongs_to(std::uint64_t id, const std::string& tenant) const;
  // True if a session uses the namespace.
  bool any_of(const Tenant& tenant) const;
  // Gives each adopted session its namespace and its reservations. Drops sessions whose pool could
  // not be taken over, since such a session has no state to resume. Ends sessions whose process cannot
  // be watched.
  void attach(const FindTenant& find_tenant);
  // Keeps the descriptors of all sessions again, for a new descriptor store.
  void keep_all();
  void add_kept_names(std::set<std::string>& names) const;

 private:
  void activate(std::uint64_t id);
  void give_back(std::uint64_t id, End how);
  Status watch_process(const Session& session);
  void take_contribution(Session& session) const;

  // The work of a call of take_notes(), some milliseconds: notes, where a look at a channel counts as
  // several. The notes of the channel that is begun last are all taken.
  static constexpr std::size_t kMostNotes = 65536;
  static constexpr std::size_t kNotesOfALook = 16;
  struct NotesPlace {
    std::uint64_t session = 0;
    std::uint32_t channel = 0;
  };

  const Options& options_;
  NodeState& node_;
  KeptFiles& kept_;
  EventLoop& events_;
  Server& server_;
  const int wake_;
  const Release release_;
  ActiveChannels channels_;
  Table sessions_;
  NotesPlace next_notes_;
  Mutex suspicions_mutex_;
  std::vector<std::uint64_t> suspicions_ MC_GUARDED_BY(suspicions_mutex_);
  std::unique_ptr<shm::BeaconWatch> beacons_;
};

}  // namespace mc::agent
