// SPDX-License-Identifier: Apache-2.0
//
// What it is: the transfer engine: memory that peers reach, peers whose memory we reach, batches.
//
//     callers ──► lock ──┬─► batches ─► peers ─┬─► TcpTransport (outgoing, flying)
//                        │                     └─► same host: chunks, copied without the lock
//     I/O thread ────────┘                          by who waits, and by the copying thread
//
//   Who waits for a batch drives the transport itself while that makes progress, so that a short
//   request pays for no switch of threads; else the I/O thread does.
// Threads: any; one lock (mutex_). Descriptors are polled, never waited for, under it.
// Owns: transport, port, threads, batches, the region table.
// Trusts: callers' pointers are theirs; peers nothing (port.h, directory.h, notification.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/engine/batch.h"
#include "transport/engine/names.h"
#include "transport/engine/notification.h"
#include "transport/engine/peer.h"
#include "transport/engine/port.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::transfer {

struct EngineOptions {
  std::string listen = "127.0.0.1:0";
  std::string metadata;  // empty: names are addresses
  std::string name;      // empty: the address
  std::string cluster = "default";
  std::string key_file;
  std::uint64_t timeout_ns = MC_DEFAULT_TIMEOUT_NS;
  std::uint32_t lanes = 4;
  bool same_host = true;
  std::string congestion_control;
};

struct SubmitOptions {
  std::uint64_t timeout_ns = 0;  // 0: the engine's
  mc_transfer_segment notify = 0;
  std::string_view note_name;
  std::string_view note_message;
  bool waits = false;  // the caller will wait at once: nobody else need be woken for small copies
};

class Engine final : private PortSink {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine() override;

  const std::string& name() const { return name_; }
  std::uint16_t tcp_port() const { return port_->address().port; }
  std::uint64_t default_timeout_ns() const { return options_.timeout_ns; }
  bool inherited_by_fork() const;
  void fill(mc_transfer_info* info);

  Status register_memory(std::span<const mc_transfer_range> ranges, std::uint32_t rights);
  Status unregister_memory(std::span<void* const> addresses);

  Result<mc_transfer_segment> open_segment(const std::string& name, std::uint64_t timeout_ns);
  Status close_segment(mc_transfer_segment segment);
  Status probe(const std::string& name, std::uint64_t timeout_ns);
  Result<Directory> list_regions(mc_transfer_segment segment, std::uint64_t timeout_ns);
  Result<bool> is_local(mc_transfer_segment segment);

  Result<mc_transfer_batch> submit(std::span<const mc_transfer_request> requests,
                                   const SubmitOptions& options);
  Status poll(mc_transfer_batch batch, bool* ended, mc_transfer_status* statuses,
              std::size_t count);
  Status wait(mc_transfer_batch batch, std::uint64_t timeout_ns);
  Status cancel(mc_transfer_batch batch);
  Status free(mc_transfer_batch batch);
  // wait() until its deadline, and free().
  Status finish(mc_transfer_batch batch);
  bool take_notification(Notification* notification);

 private:
  using Lock = std::unique_lock<std::mutex>;

  explicit Engine(const EngineOptions& options);
  Status start(const Address& listen, const metadata::rpc::ClusterKey& key);

  // engine.cc: the loop.
  void run();
  bool step(std::uint64_t now_ns);
  void handle(const transport::Event& event);
  void set_armed(bool armed);
  void nudge();
  Lock lock_in();
  void let_in(Lock& lock);
  // Drives while there is progress, then sleeps on `changed`. False: not by then.
  bool wait_until(Lock& lock, std::condition_variable& changed, std::uint64_t deadline_ns,
                  const std::function<bool()>& done);

  // engine_memory.cc
  void publish_regions();
  struct Region;
  const Region* region_of(const std::byte* data, std::uint64_t size_bytes) const;
  void release_local(Lock& lock, const std::byte* data, std::uint64_t size_bytes);
  // Device memory is loaded late, by who computes.
  Result<DeviceRange> device_range(const mc_transfer_range& range);
  Status stage(Batch& batch);
  Status stage(Request& request);
  Status unstage(Request& request);

  // engine_peers.cc
  Peer* find_peer(mc_transfer_segment segment);
  const Address* address_of(transport::NodeId node) const override;
  void on_introduced(std::uint64_t call,
                     const Result<EngineDescriptor>& engine_descriptor) override;
  void introduce(Peer& peer);
  bool connect(Peer& peer);
  void look_at_table(Peer& peer);
  void on_table_bytes(Peer& peer, transport::Outcome outcome);
  void take_table(Peer& peer, Result<Directory> directory);
  void lose(Peer& peer, const Status& status);
  void release_waiting(Peer& peer);
  void expire_waiting(std::uint64_t now_ns);

  // engine_batches.cc
  struct Item {
    std::uint32_t slot = 0;   // of the batch
    std::uint32_t index = 0;  // of the request
  };
  Batch* find_batch(mc_transfer_batch id);
  void leave(Batch& batch);
  void start(Batch& batch, std::uint32_t index);
  void wait_for_peer(Batch& batch, std::uint32_t index, Peer& peer);
  void route(Batch& batch, std::uint32_t index, Peer& peer);
  void look_again(Batch& batch, std::uint32_t index, Peer& peer, const Status& otherwise);
  void send_outgoing();
  void end(Batch& batch, Request& request, const Status& status);
  void end(Batch& batch, Request& request, transport::Outcome outcome);
  void cancel(Batch& batch, Request& request, const Status& status);
  void on_request(const transport::Event& event);

  // copying.cc
  struct Chunk;
  bool take_chunk(Batch& batch, Chunk* chunk);
  void copy_chunk(Lock& lock, Batch& batch, const Chunk& chunk);
  void copy_all(Lock& lock, Batch& batch, std::uint64_t deadline_ns);
  void start_copying(Batch& batch, std::uint32_t index, const DirectoryEntry& entry,
                     const Peer& peer);
  void finish_copy(Batch& batch, std::uint32_t index, transport::Outcome last);
  void wake_copier(Batch& batch);
  void run_copier();

  const EngineOptions options_;
  const int pid_;
  std::string name_;
  std::unique_ptr<Names> names_;
  EngineDescriptor engine_descriptor_{};

  std::mutex mutex_;
  std::atomic<int> contenders_{0};
  std::unique_ptr<DirectoryWriter> directory_;
  transport::RegionId directory_region_ = transport::kNoRegion;
  std::unique_ptr<Port> port_;
  std::unique_ptr<transport::tcp::TcpTransport> transport_;
  std::vector<transport::Event> events_;

  struct Region {
    std::uint64_t size_bytes;
    std::uint32_t rights;
    std::uint32_t order;
    transport::RegionId id;
    // What this process may do there, as far as its first and last page tell.
    bool readable;
    bool writable;
    RegionText descriptor;
    std::unique_ptr<StagedRegion> staged;  // of memory of a device
  };
  std::map<std::uint64_t, Region> regions_;     // by address
  std::atomic<std::uint64_t> staged_bytes_{0};  // of requests, now
  std::uint64_t device_bytes_ = 0;
  std::uint32_t next_order_ = 1;

  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::uint32_t> peer_generations_;
  std::uint32_t waiting_ = 0;  // requests in kWaiting, so that deadlines are looked after

  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<std::uint32_t> batch_generations_;
  std::vector<std::uint32_t> free_batches_;
  std::deque<Item> outgoing_;

  std::deque<Notification> notifications_;
  std::uint64_t dropped_ = 0;
  std::uint64_t same_host_bytes_ = 0;
  std::uint64_t same_host_written_ = 0;

  // The I/O thread.
  Fd outer_;  // epoll: the transport's descriptor, the port's, wake_
  Fd wake_;
  bool armed_ = true;      // the transport's descriptor wakes the I/O thread
  bool sleeping_ = false;  // the I/O thread is, until sleeping_until_ns_
  std::uint64_t sleeping_until_ns_ = 0;
  bool driven_ = false;  // by a caller that waits
  bool stopping_ = false;
  std::uint64_t next_port_ns_ = 0;
  std::thread io_thread_;

  // The copying thread.
  std::deque<std::uint32_t> copying_;  // slots of batches with chunks to copy
  std::condition_variable copier_wakes_;
  std::thread copier_;
};

}  // namespace mc::transfer
