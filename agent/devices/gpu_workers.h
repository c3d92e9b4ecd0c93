// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of the workers of devices (agent/gpu): tells each worker which pools there are and
//   how much of them exists, brings clients and workers together, and holds a client's memory until
//   no worker copies for the client.
//
//   worker ──hello──► attach()            client ──lane wanted──► open_lane()
//   a session ends ──► release() ──kEndClient──► worker ──kClientEnded──► done
//
//   A worker that does not answer is killed, and the end is the answer. The workers of an earlier
//   agent are killed at once.
// Threads: the agent's loop. No call waits for a worker.
// Owns: links to workers, and pidfds of workers, which the descriptor store keeps as well.
// Trusts: nothing. A worker is of the agent's user (Control); messages are checked.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/gpu/link.h"
#include "agent/keeper/kept_files.h"
#include "agent/loop/event_loop.h"
#include "agent/namespaces/namespaces.h"
#include "agent/server/session.h"
#include "libmc/base/fd.h"

namespace mc::agent {

class GpuWorkers {
 public:
  GpuWorkers(Namespaces& namespaces, KeptFiles& kept, EventLoop& events)
      : namespaces_(namespaces), kept_(kept), events_(events) {}
  GpuWorkers(const GpuWorkers&) = delete;
  GpuWorkers& operator=(const GpuWorkers&) = delete;
  ~GpuWorkers();

  // A worker has connected; pidfd: of its process. Errors: MC_NO_MEMORY (descriptors), and those of
  // the descriptor store.
  Status attach(Fd link, Fd pidfd, pid_t pid);

  // Descriptors of a lane, for the client, which closes these.
  struct LaneFiles {
    Fd lane;
    Fd worker_bell;            // the client rings
    Fd client_bell;            // an epoll, which the client polls
    Fd socket;                 // the client sends descriptors of chunks
    Fd worker;                 // pidfd: after its end no copy is under way
    std::uint64_t number = 0;  // of the worker, never used again
  };
  // Errors: MC_UNSUPPORTED (no worker serves the device), MC_BUSY (too many lanes), MC_NO_MEMORY.
  Result<LaneFiles> open_lane(const Session& session, const device::Uuid& device);

  // True: no worker copies for the session. False: done is called when none does any more.
  bool release(std::uint64_t session, std::function<void()> done);

  // Whether all workers have let go of the memory that the pool gave back. Until then the pool must
  // not grow: the workers would take the old pages for the new ones.
  bool let_go(const Tenant& tenant);
  // Tells the workers of pools that came, went, grew or shrank; asks what they have done.
  void tick(std::uint64_t now_ns);

  struct Report {
    pid_t pid = 0;
    device::Uuid device{};
    std::size_t clients = 0;
    gpu::WorkerCounters counters;  // of the last second
  };
  // The workers that serve.
  std::vector<Report> reports() const;

  // ---- Restart
  // Ends the workers of the earlier agent. Until their end, no session and no pool gets memory back.
  Status adopt(KeptDescriptors& kept);
  void keep_all();
  void add_kept_names(std::set<std::string>& names) const;

 private:
  struct ToldPool {
    std::uint64_t number = 0;
    std::weak_ptr<Tenant> tenant;
    const Tenant* at = nullptr;                      // for comparisons, never followed
    std::vector<std::uint64_t> backed;               // of each part
    std::uint64_t size_changes = ~std::uint64_t{0};  // of the pool, when backed was told
    std::uint64_t losses = 0;
    std::uint32_t unpinning = 0;  // answers that are missing
  };
  struct Process {
    std::string name;  // in the descriptor store
    Fd pidfd;
  };
  using Pools = std::map<std::uint64_t, ToldPool>;  // by number
  struct Worker {
    Fd link;
    Process process;
    pid_t pid = 0;
    std::uint64_t number = 0;             // time of attach()
    std::deque<gpu::LinkMessage> unsent;  // the link was full
    bool introduced = false;
    device::Uuid device{};
    Pools pools;
    std::map<std::uint64_t, std::uint32_t> clients;   // lanes of each session
    std::map<std::uint64_t, std::uint64_t> asked_ns;  // by ticket: when; no answer yet
    std::uint64_t asked_report_ns = 0;
    gpu::WorkerCounters counters;
  };
  using Workers = std::map<int, Worker>;  // by link

  void on_message(int link);
  void on_end(int link);
  void on_earlier_end(int pidfd);
  void take(Worker& worker, const gpu::LinkMessage& message);
  void send(Worker& worker, const gpu::LinkMessage& message);
  // With descriptors. False: the link is full.
  bool try_send(Worker& worker, const gpu::LinkMessage& message, std::span<const int> fds);
  void send_rest(Worker& worker);
  // Sends a message that the worker must answer.
  void ask(Worker& worker, gpu::LinkMessage message);
  void end_if_silent(Worker& worker, std::uint64_t now_ns);
  void tell_pools();
  static Pools::iterator find_pool(Worker& worker, const Tenant& tenant);
  void tell_pool(Worker& worker, const std::shared_ptr<Tenant>& tenant);
  void tell_backed(Worker& worker, ToldPool& pool, const Tenant& tenant);
  bool is_used(std::uint64_t session) const;
  void client_ended(std::uint64_t session);

  Namespaces& namespaces_;
  KeptFiles& kept_;
  EventLoop& events_;
  Workers workers_;
  std::map<int, Process> earlier_;                            // by pidfd
  std::map<std::uint64_t, std::function<void()>> releasing_;  // by session
  std::uint64_t next_pool_ = 1;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mc::agent
