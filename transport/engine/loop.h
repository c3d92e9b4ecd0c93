// SPDX-License-Identifier: Apache-2.0
//
// The engine's lock and the turns of the transport. The I/O thread drives the transport,
//   except while a caller waits: then the caller drives, so a short request costs no thread switch.
//
//     caller that waits ── wait_until() ──┐
//                                         ├─► step(): poll the transport ─► LoopSink
//     I/O thread ── run() ────────────────┘
//
// Threads: any thread. Every call needs the lock, unless the comment says otherwise. Descriptors
//   are polled under the lock; the loop never sleeps under the lock.
// Owns: the lock and the I/O thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "transport/engine/port.h"
#include "transport/transport.h"

namespace mc::transfer {

// Called with the lock.
class LoopSink {
 public:
  virtual ~LoopSink() = default;
  virtual void on_event(const transport::Event& event) = 0;
  // Hands waiting requests to the transport.
  virtual void send_outgoing() = 0;
  virtual bool has_outgoing() const = 0;
  // Ends requests that waited for a peer until the deadline.
  virtual void expire_waiting(std::uint64_t now_ns) = 0;
  virtual bool has_waiting() const = 0;
};

class Loop {
 public:
  Mutex mutex;

  // Takes the lock for a scope. A thread that drives lets waiting turns in.
  class MC_THREAD_ANNOTATION(scoped_lockable) Turn {
   public:
    explicit Turn(Loop& loop) MC_THREAD_ANNOTATION(acquire_capability(loop.mutex))
        : lock_((loop.enter(), loop.mutex), std::adopt_lock) {}
    ~Turn() MC_THREAD_ANNOTATION(release_capability()) = default;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::unique_lock<Mutex> lock_;
  };

  explicit Loop(LoopSink& sink) : sink_(sink) {}
  ~Loop() { stop(); }

  // Starts the I/O thread. Errors: MC_NO_MEMORY.
  Status start(transport::Transport& transport, Port& port) MC_REQUIRES(mutex);
  // Ends the I/O thread. Takes the lock.
  void stop() MC_EXCLUDES(mutex);

  // Polls the transport unless a caller drives already.
  void step_if_idle() MC_REQUIRES(mutex);
  // Wakes the I/O thread if the transport has work before the thread's next look.
  void nudge();
  // Wakes the I/O thread if the thread sleeps and no caller drives.
  void wake();
  // Drives while there is progress, then sleeps on `changed`. False: the deadline passed first.
  bool wait_until(Condition& changed, std::uint64_t deadline_ns, const std::function<bool()>& done)
      MC_REQUIRES(mutex);
  // Runs work() without the lock.
  template <typename Work>
  auto without_lock(Work work) MC_REQUIRES(mutex) {
    mutex.unlock();
    const auto result = work();
    enter();
    return result;
  }
  // Tells Clang that the caller holds the lock.
  void assert_held() const MC_THREAD_ANNOTATION(assert_capability(mutex)) {}

 private:
  void enter() MC_THREAD_ANNOTATION(acquire_capability(mutex));
  void run() MC_EXCLUDES(mutex);
  bool step(std::uint64_t now_ns) MC_REQUIRES(mutex);
  void let_in() MC_REQUIRES(mutex);
  void set_armed(bool armed) MC_REQUIRES(mutex);

  LoopSink& sink_;
  transport::Transport* transport_ = nullptr;
  Port* port_ = nullptr;
  std::atomic<int> contenders_{0};  // threads that wait for a turn
  Fd outer_;                        // epoll: the transport's descriptor, the port's, wake_
  Fd wake_;
  std::vector<transport::Event> events_ MC_GUARDED_BY(mutex);
  bool armed_ MC_GUARDED_BY(mutex) = true;      // the transport's descriptor wakes the I/O thread
  bool sleeping_ MC_GUARDED_BY(mutex) = false;  // the I/O thread sleeps until sleeping_until_ns_
  std::uint64_t sleeping_until_ns_ MC_GUARDED_BY(mutex) = 0;
  bool driven_ MC_GUARDED_BY(mutex) = false;  // a caller that waits drives the transport
  bool stopping_ MC_GUARDED_BY(mutex) = false;
  std::uint64_t next_port_ns_ MC_GUARDED_BY(mutex) = 0;
  std::thread io_thread_;
};

}  // namespace mc::transfer
