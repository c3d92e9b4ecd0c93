// SPDX-License-Identifier: Apache-2.0
//
// A client of the agent. The client follows the agent across restarts and owns the channels of
//   the client's threads.
//
//   open ──► connected ──agent gone──► reconnecting ──session resumed──► connected
//                                          ├──session unknown: a new one──► connected
//                                          └──refused for good──► lost
//
// Threads: any thread may call. The watcher thread holds the beacon and watches the socket.
// Owns: the channels, the current connection, and the memory of earlier sessions while views point
//   into it.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "libmc/base/mutex.h"
#include "libmc/client/device/lane_end.h"
#include "libmc/client/device/registrations.h"
#include "libmc/client/session/channel.h"
#include "libmc/client/session/connection.h"
#include "libmc/client/session/staging.h"
#include "mc/mc.h"
#include "shm/beacon.h"

namespace mc::client {

// Makes connections: to a socket path, or to an agent inside this process.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual Result<Fd> connect(std::uint64_t timeout_ns) = 0;
};
std::unique_ptr<Connector> make_socket_connector(std::string path);
// Called once by the library that contains the agent core (shared/libmc.cc, or a program's main).
using EmbeddedFactory = Result<std::unique_ptr<Connector>> (*)(const char* config);
void set_embedded_factory(EmbeddedFactory factory);

class CompletionQueue;
class CopyGroup;
class StreamCopies;

// Use of a channel for the length of a call. A shared channel stays locked for that time.
class ChannelUse {
 public:
  ChannelUse() = default;
  explicit ChannelUse(Channel* channel) : channel_(channel) {}
  ChannelUse(Channel* channel, std::unique_lock<Mutex> lock)
      : channel_(channel), lock_(std::move(lock)) {}
  Channel* operator->() const { return channel_; }
  Channel& operator*() const { return *channel_; }
  explicit operator bool() const { return channel_ != nullptr; }

 private:
  Channel* channel_ = nullptr;
  std::unique_lock<Mutex> lock_;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> open(const mc_open_options& options);
  ~Client();

  struct Current {
    Connection connection;
    std::uint64_t generation = 0;
  };
  Current current() const;
  std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }
  std::uint64_t default_timeout_ns() const { return timeout_ns_; }
  // MC_OK, or the reason why this client can never be used again.
  Status lost() const;
  bool inherited_by_fork() const;
  // The wait between two tries. True: the client ends.
  bool stop_within(std::uint64_t ns) const;

  // Returns this thread's channel. If the agent is away, the call waits for the agent until the
  // deadline. Errors: MC_FORKED, and the status of lost().
  Result<ChannelUse> channel(std::uint64_t deadline_ns);
  // Returns this thread's channel without any check or wait. Null: the thread has no channel yet,
  // or the session changed.
  Channel* quick_channel();
  // Leases an exclusive channel to a completion queue; null if all channels are in use.
  Channel* lease_channel();
  void return_channel(Channel* channel);
  // Registers a queue for nudges. While requests are outstanding, the owner of the queue must look
  // at the queue now and then: an agent may go away or come back without ringing the bell.
  void add_queue(CompletionQueue* queue);
  void forget_queue(CompletionQueue* queue);
  Status open_channel(AgentLink& link, std::uint32_t number, std::uint64_t deadline_ns);
  // Opens a lane to the worker of a device. Errors: MC_UNSUPPORTED (there is no worker), MC_BUSY.
  Result<std::unique_ptr<LaneEnd>> open_lane(const device::Uuid& device);
  Registrations& registrations() { return registrations_; }
  StreamCopies& stream_copies();
  // The reads that streams order.
  const std::shared_ptr<CopyGroup>& stream_reads() const { return stream_reads_; }

  // The session memory, of this or an earlier connection, that contains a pin slot; null if none
  // does.
  std::shared_ptr<Memory> memory_of_pin(const shm::Word64* pin) const;

  // Opens a separate connection to the agent for a question of admin.h.
  Result<Fd> connect_to_ask(std::uint64_t timeout_ns) { return connector_->connect(timeout_ns); }

  // Session memory, allocated at first use.
  Result<std::shared_ptr<Staging>> staging(std::uint64_t deadline_ns);
  std::shared_ptr<Staging> staging_if_any() const;
  // The session memory, of this or an earlier session, that contains an address; null if none does.
  std::shared_ptr<Staging> staging_of(const void* memory) const;

 private:
  struct Registry;
  friend struct ThreadChannels;
  // verify: a number of mc_verify. Errors: MC_INVALID_ARGUMENT for any other number.
  static Result<std::uint64_t> reads_per_check(std::uint32_t verify);
  Client(const mc_open_options& options, std::uint64_t reads_per_check,
         std::unique_ptr<Connector> connector);
  Status start();
  // The beacon of the session whose memory the watcher knows.
  struct HeldBeacon {
    std::shared_ptr<Memory> memory;
    std::optional<shm::BeaconHold> hold;
  };
  static void hold(HeldBeacon& beacon, const std::shared_ptr<Memory>& memory);
  void watch_agent(std::promise<void>& beacon_held);
  bool watch_once(HeldBeacon& beacon);
  void nudge_queues();
  void give_back_reservation_cache(const Current& now);
  void give_back_through(Channel& channel, const Current& now);
  void close_registered_memory();
  void reconnect();
  void adopt(Connection connection);
  bool let_go_of_old_memory();
  Channel* assign_channel();

  std::unique_ptr<Connector> connector_;
  HelloTexts texts_;
  std::uint64_t timeout_ns_;
  std::uint64_t staging_bytes_;
  const std::uint64_t reads_per_check_;  // of each channel
  std::uint64_t serial_;                 // number of this client in the process; never reused
  std::uint32_t fork_generation_;
  std::atomic<std::uint64_t> generation_{0};

  mutable Mutex mutex_;
  Connection connection_ MC_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Memory>> old_memory_ MC_GUARDED_BY(mutex_);
  Status lost_ MC_GUARDED_BY(mutex_);
  std::shared_ptr<Staging> staging_ MC_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Staging>> old_staging_ MC_GUARDED_BY(mutex_);
  Mutex control_mutex_;  // serialises questions on the socket
  Registrations registrations_;
  const std::shared_ptr<CopyGroup> stream_reads_;
  std::unique_ptr<StreamCopies> stream_copies_ MC_GUARDED_BY(mutex_);  // null until the first copy

  std::shared_ptr<Registry> registry_;
  std::unique_ptr<Channel> shared_channel_;
  Mutex shared_channel_mutex_;  // locked through ChannelUse, which moves the lock
  Mutex queues_mutex_;
  std::vector<CompletionQueue*> queues_ MC_GUARDED_BY(queues_mutex_);
  Fd queue_event_;  // signalled by the first queue
  Fd stop_event_;
  std::thread watcher_;
};

}  // namespace mc::client
