// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of the socket: accepts connections, decides which users may connect,
//   and passes hellos to the sessions and admin requests to Admin.
// Threads: the agent's loop, except connect_embedded().
// Owns: the listener and the connections.
// Trusts: the kernel's credentials of a peer. Every message is decoded and checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/admin/admin.h"
#include "agent/devices/gpu_workers.h"
#include "agent/loop/event_loop.h"
#include "agent/namespaces/namespaces.h"
#include "agent/options/options.h"
#include "agent/server/server.h"
#include "agent/sessions/sessions.h"
#include "libmc/base/mutex.h"
#include "shm/messages.h"

namespace mc::agent {

class Control {
 public:
  // embedded: the clients are in this process, and may use isolated namespaces.
  Control(const Options& options, bool embedded, Admin& admin, Namespaces& namespaces,
          Sessions& sessions, GpuWorkers& gpu_workers, EventLoop& events, int wake)
      : options_(options),
        embedded_(embedded),
        admin_(admin),
        namespaces_(namespaces),
        sessions_(sessions),
        gpu_workers_(gpu_workers),
        events_(events),
        wake_(wake) {}

  // Listens on options.socket. listener: the listening socket; none: made here.
  Status listen(Fd listener);
  // A connection from this process. Any thread; the loop accepts the connection later.
  Result<Fd> connect_embedded();
  // Accepts the connections of connect_embedded().
  void adopt_embedded();
  // Ends the sessions of a namespace and closes their connections.
  void end_sessions_of(const Tenant& tenant);
  // Asks the clients in the tail of a shrinking pool for their cached reservations, now and then.
  void ask_for_reservation_cache(std::uint64_t now_ns);

 private:
  struct Connection {
    Fd socket;
    PeerCredentials peer;
    std::uint64_t session_id = 0;  // 0, or an ended session: no session
    std::uint64_t opened_ns = 0;
  };

  void add_connection(Fd socket, const PeerCredentials& peer);
  void accept_clients();
  void refuse_without_descriptor();
  bool close_idle_connection();
  void close_connection(int fd);
  void on_message(int fd);
  void on_hello(Connection& connection, const std::vector<std::byte>& bytes);
  Result<Session*> begin_session(const Connection& connection, const shm::ClientHello& hello,
                                 const std::string& tenant, const std::string& label);
  Result<Session*> resume_session(const Connection& connection, const shm::ClientHello& hello,
                                  const std::string& tenant, const std::string& label);
  void log_refusal(const PeerCredentials& peer, const Status& status);
  void on_open_channel(const Connection& connection, std::uint64_t number);
  void on_open_staging(const Connection& connection, std::uint64_t bytes);
  void on_open_lane(const Connection& connection, std::string_view device);
  void on_gpu_worker(int fd);
  void on_admin(const Connection& connection, std::string_view text);

  const Options& options_;
  const bool embedded_;
  Admin& admin_;
  Namespaces& namespaces_;
  Sessions& sessions_;
  GpuWorkers& gpu_workers_;
  EventLoop& events_;
  const int wake_;
  Fd listener_;
  Fd spare_;  // closed for a moment when accept() finds no free descriptor
  std::map<int, Connection> connections_;
  std::uint64_t next_refusal_line_ns_ = 0;
  unsigned refusal_lines_ = 0;  // in this period
  std::uint64_t refusals_unlogged_ = 0;
  Mutex embedded_mutex_;
  std::vector<Fd> embedded_pending_ MC_GUARDED_BY(embedded_mutex_);
};

}  // namespace mc::agent
