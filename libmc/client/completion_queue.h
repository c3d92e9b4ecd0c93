// SPDX-License-Identifier: Apache-2.0
//
// The queue behind the asynchronous calls. The queue has a separate channel. Requests make
//   progress only when a thread submits, polls or waits.
//
//   put item:  copied ──cached reservation──► in the pool ──kPut──► done
//                 └──no reservation──► in a private buffer ──kReserve──► in the pool ──kPut──► done
//   get item:  done at once, or ──kFetch──► pinned by the agent ──► copied ──► done
//   exists:    done at once, or ──kExists──► done
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
#include "libmc/client/writing.h"
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
  enum class Verb { kPut, kRemove, kGet, kExists };
  // kAsking: the agent asks other hosts.
  enum class Phase { kUnsent, kReserving, kPublishing, kRemoving, kAsking, kDone };
  struct Item {
    Phase phase = Phase::kUnsent;
    Verb verb = Verb::kPut;
    mc_get_item* get = nullptr;   // for kGet
    mc_status* answer = nullptr;  // for kExists
    shm::Word64* pin = nullptr;   // for kGet, while the agent fetches the object
    std::string key;
    std::uint64_t hash = 0;
    shm::PutItem fields{};
    std::vector<std::byte> buffer;  // the value, until a place in shared memory is found
    bool placed = false;            // the value is in the pool or in staging
    bool elsewhere = false;         // the pool has no room, so the value is offered to other hosts
                                    // from staging
    std::uint64_t session = 0;      // serial of the memory of the session that has the place
    Reserved reserved;
    std::shared_ptr<Staging> staging;
    mc_status status = MC_OK;
    Channel::Ticket ticket;
  };
  struct Operation {
    std::uint64_t request = 0;
    std::uint64_t user_data = 0;
    std::uint64_t deadline_ns = 0;
    std::uint16_t flags = 0;
    bool cancelled = false;
    std::size_t item_count = 0;  // items of the caller; `items` has the unfinished
    std::vector<Item> items;
    std::size_t open_items = 0;
    mc_status first_failure = MC_OK;
  };

  explicit CompletionQueue(Client& client) : client_(client) {}
  Status begin(std::uint64_t deadline_ns) MC_REQUIRES(mutex_);
  void finish_everything();
  void pump() MC_REQUIRES(mutex_);
  void follow_connection() MC_REQUIRES(mutex_);
  void advance(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void send(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  Status place(Item& item, const mc_slice* pieces, std::size_t piece_count) MC_REQUIRES(mutex_);
  bool offer_elsewhere(Item& item, mc_status status) MC_REQUIRES(mutex_);
  void on_reserved(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void on_published(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void ask(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void on_answered(Operation& operation, Item& item) MC_REQUIRES(mutex_);
  void settle(Operation& operation, Item& item, mc_status status) MC_REQUIRES(mutex_);
  void expire(Operation& operation, mc_status status) MC_REQUIRES(mutex_);
  std::size_t take_ready(mc_completion* completions, std::size_t capacity) MC_REQUIRES(mutex_);
  void add_ready(const mc_completion& completion) MC_REQUIRES(mutex_);
  static Operation begun(std::size_t count, std::uint64_t deadline_ns, std::uint64_t user_data);
  std::uint64_t add(Operation operation, std::uint64_t* request) MC_REQUIRES(mutex_);

  Client& client_;
  Mutex mutex_;
  Channel* channel_ MC_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t watched_generation_ MC_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Link> watched_link_ MC_GUARDED_BY(mutex_);
  Fd event_;  // signalled for completions that need no agent
  Fd epoll_;  // event_ and the client's eventfd; edge-triggered: queues share the eventfd
  std::list<Operation> operations_ MC_GUARDED_BY(mutex_);
  std::deque<mc_completion> ready_ MC_GUARDED_BY(mutex_);
  std::uint64_t next_request_ MC_GUARDED_BY(mutex_) = 1;
  std::atomic<std::uint64_t> outstanding_{0};  // operations_.size(), for nudge()
};

}  // namespace mc::client
