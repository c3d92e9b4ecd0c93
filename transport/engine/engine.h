// SPDX-License-Identifier: Apache-2.0
//
// The transfer engine: composes the parts, and waits on behalf of callers.
//
//     callers ──► Engine ──┬─► Batches ──┬─► Peers ──► Port (introductions, lanes)
//                          │             ├─► TcpTransport, or ChoiceTransport: TCP beside rdma or fabric
//                          │             └─► Copier (same host, without the lock)
//                          ├─► MemoryRegistry (memory that peers reach)
//                          └─► Loop (the lock, the I/O thread, turns of the transport)
//
// Threads: any thread. The lock loop_.mutex guards all parts.
// Owns: all parts.
// Trusts: callers' pointers; no peer (port.h, wire/directory.h, wire/notification.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/choice/choice_transport.h"
#include "transport/choice/direct_way.h"
#include "transport/engine/batches.h"
#include "transport/engine/loop.h"
#include "transport/engine/memory_registry.h"
#include "transport/engine/name_store.h"
#include "transport/engine/notification_queue.h"
#include "transport/engine/peers.h"
#include "transport/engine/verifier.h"

namespace mc::transfer {

struct EngineOptions {
  std::string listen = "127.0.0.1:0";
  std::string name;  // empty: the address
  std::string cluster = "default";
  std::string key_file;
  std::uint64_t timeout_ns = MC_DEFAULT_TIMEOUT_NS;
  std::uint32_t lanes = 4;
  bool same_host = true;
  std::string congestion_control;
  std::string transports = "auto";
  std::vector<std::string> devices;
  std::string fabric_provider = transport::choice::kEfaProvider;
  std::uint32_t rdma_ack_timeout = 14;
};

// The calls of transfer.h. transfer.h documents each call.
class Engine final : private LoopSink {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options,
                                              std::unique_ptr<NameStore> names);
  ~Engine() override;

  std::uint64_t default_timeout_ns() const { return options_.timeout_ns; }
  bool inherited_by_fork() const;
  void fill(mc_transfer_info* info);
  // For people: devices, rails to each peer, and why devices or rails are missing.
  std::string describe();

  Status register_memory(std::span<const mc_transfer_range> ranges, std::uint32_t rights,
                         const std::string& location);
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
  // wait() until the batch's deadline, then free().
  Status finish(mc_transfer_batch batch);
  bool take_notification(Notification* notification);

 private:
  explicit Engine(const EngineOptions& options, std::unique_ptr<NameStore> names);
  Status start();
  Result<std::unique_ptr<transport::Transport>> open_transport(const EngineDescriptor& own)
      MC_REQUIRES(loop_.mutex);
  // Waits until the devices have registered the ranges. Errors: a transport that the options name cannot.
  Status await_devices(std::span<const mc_transfer_range> ranges) MC_REQUIRES(loop_.mutex);
  Status unregister_held(std::span<void* const> addresses) MC_REQUIRES(loop_.mutex);
  void release_local(const std::byte* data, std::uint64_t size_bytes) MC_REQUIRES(loop_.mutex);

  void on_event(const transport::Event& event) MC_REQUIRES(loop_.mutex) override;
  void send_outgoing() MC_REQUIRES(loop_.mutex) override { batches_.send_outgoing(); }
  bool has_outgoing() const MC_REQUIRES(loop_.mutex) override { return batches_.has_outgoing(); }
  void expire_waiting(std::uint64_t now_ns) MC_REQUIRES(loop_.mutex) override {
    batches_.expire_waiting(now_ns);
  }
  bool has_waiting() const MC_REQUIRES(loop_.mutex) override { return batches_.has_waiting(); }

  const EngineOptions options_;
  const int pid_;
  std::string name_;
  std::unique_ptr<NameStore> names_;

  Loop loop_;
  DeviceStaging devices_;
  NotificationQueue notifications_ MC_GUARDED_BY(loop_.mutex);
  MemoryRegistry memory_ MC_GUARDED_BY(loop_.mutex);
  Verifier verifier_ MC_GUARDED_BY(loop_.mutex);
  Peers peers_ MC_GUARDED_BY(loop_.mutex);
  Copier copier_;
  Batches batches_ MC_GUARDED_BY(loop_.mutex);
  std::unique_ptr<Port> port_;
  std::unique_ptr<transport::Transport> transport_ MC_PT_GUARDED_BY(loop_.mutex);
  // Of transport_, if that is a ChoiceTransport; null: TCP alone, why_not_ says why.
  transport::choice::ChoiceTransport* choice_ MC_PT_GUARDED_BY(loop_.mutex) = nullptr;
  transport::OneSidedTransport* direct_ MC_PT_GUARDED_BY(loop_.mutex) = nullptr;
  std::string why_not_;
};

}  // namespace mc::transfer
