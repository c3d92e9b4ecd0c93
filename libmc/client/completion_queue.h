// SPDX-License-Identifier: Apache-2.0
//
// The queue behind the asynchronous calls. The queue has a separate channel. Requests make
//   progress only when a thread submits, polls or waits.
//
//   puts:    a PutBatch; values without room are kept in private buffers
//   get:     done at once, or ──kFetch──► pinned by the agent ──► copied ──► done
//   exists:  done at once, or ──kExists──► done
//   remove:  ──kRemove──► done
//
// Threads: any thread; one lock (mutex_).
// Owns: the channel and all requests in flight on the channel.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "libmc/base/mutex.h"
#include "libmc/client/client.h"
#include "libmc/client/put_batch.h"
#include "mc/mc.h"

namespace mc::client {

class CompletionQueue {
 public:
  static Result<std::unique_ptr<CompletionQueue>> create(Client& client);
  ~CompletionQueue();

  int fd();
  std::size_t poll(mc_completion* completions, std::size_t capacity);
  std::size_t wait(mc_completion* completions, std::size_t capacity, std::uint64_t timeout_ns);

  Status put(const mc_put_item* items, std::size_t count, const PutRules& rules,
             std::uint64_t user_data, std::uint64_t* request);
  Status remove(const mc_slice* keys, std::size_t count, std::uint64_t deadline_ns,
                std::uint64_t user_data, std::uint64_t* request);
  // Asks the cluster about items that an earlier look-up on this host left as MC_NOT_FOUND. items,
  // the memory that they point to, and statuses belong to the queue until the completion.
  Status get(mc_get_item* items, std::size_t count, std::uint64_t deadline_ns,
             std::uint64_t user_data, std::uint64_t* request);
  Status exists(const mc_slice* keys, std::size_t count, mc_status* statuses,
                std::uint64_t deadline_ns, std::uint64_t user_data, std::uint64_t* request);
  // Adds the completion of a local operation that is already done.
  void complete_now(mc_status status, std::size_t count, std::uint64_t user_data,
                    std::uint64_t* request);
  Status cancel(std::uint64_t request);
  // Makes the descriptor readable if a request is outstanding, so that the owner polls. Any thread.
  void nudge();

 private:
  // A question to the agent about a key.
  struct Item {
    bool done = false;
    std::string key;
    mc_get_item* get = nullptr;      // of kFetch
    mc_status* answer = nullptr;     // of kExists
    shm::Word64* pin = nullptr;      // of kFetch, while the agent fetches the object
    std::shared_ptr<Memory> memory;  // with the pin
    Channel::Ticket ticket;
  };
  // Puts with copies of the caller's keys.
  struct Puts {
    Puts(Client& client, Channel& channel, const mc_put_item* from, std::size_t count,
         const PutRules& with, const Fd& bell);
    mc_slice keep(mc_slice text);

    std::vector<char> texts;  // never grows beyond its capacity, because slices point there
    std::vector<mc_put_item> items;
    PutRules rules;
    PutBatch batch;  // last: uses all others
  };
  struct Operation {
    std::uint64_t request = 0;
    std::uint64_t user_data = 0;
    std::uint64_t deadline_ns = 0;
    bool cancelled = false;
    std::size_t item_count = 0;  // items of the caller
    shm::Op op = shm::Op::kNoop;
    std::vector<Item> items;  // the unfinished
    std::size_t open_items = 0;
    mc_status first_failure = MC_OK;
    std::unique_ptr<Puts> puts;  // null: `items` has the work
  };

  explicit CompletionQueue(Client& client) : client_(client) {}
  Status begin(std::uint64_t deadline_ns) MC_REQUIRES(mutex_);
  void finish_everything();
  void pump() MC_REQUIRES(mutex_);
  void follow_connection() MC_REQUIRES(mutex_);
  bool go_on(Operation& operation) MC_REQUIRES(mutex_);
  bool answered(const Operation& operation) const MC_REQUIRES(mutex_);
  void ask(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void on_answered(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  static void settle(Operation& operation, Item& item, mc_status status);
  void expire(Operation& operation, mc_status status) MC_REQUIRES(mutex_);
  std::size_t take_ready(mc_completion* completions, std::size_t capacity) MC_REQUIRES(mutex_);
  void add_ready(const mc_completion& completion) MC_REQUIRES(mutex_);
  static Operation begun(std::size_t count, std::uint64_t deadline_ns, std::uint64_t user_data);
  std::uint64_t add(Operation operation, std::uint64_t* request) MC_REQUIRES(mutex_);

  Client& client_;
  Mutex mutex_;
  Channel* channel_ MC_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t watched_generation_ MC_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<AgentLink> watched_link_ MC_GUARDED_BY(mutex_);
  Fd event_;  // signalled for completions that need no agent
  Fd epoll_;  // event_ and the client's eventfd; edge-triggered: queues share the eventfd
  std::list<Operation> operations_ MC_GUARDED_BY(mutex_);
  std::deque<mc_completion> ready_ MC_GUARDED_BY(mutex_);
  std::uint64_t next_request_ MC_GUARDED_BY(mutex_) = 1;
  std::atomic<std::uint64_t> outstanding_{0};  // operations_.size(), for nudge()
};

}  // namespace mc::client
