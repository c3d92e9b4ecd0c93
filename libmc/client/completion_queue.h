// SPDX-License-Identifier: Apache-2.0
//
// What it is: the asynchronous forms: a queue with a channel of its own, on which requests go on
// while
//   their callers do something else. It moves when somebody submits, polls or waits.
//
//   put item:   copied ──reservation in reservation cache──► in the pool ──kPut──► done
//                  └──none──► in a private buffer ──kReserve──► in the pool ──kPut──► done
//   get item:   done at once, or ──kFetch──► lent by the agent ──► copied; exists: ──kExists──►
//   done
// Threads: any; one lock. Owns: its channel and everything in flight on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
  // What an earlier look on this host has left as MC_NOT_FOUND is asked of the cluster. items, and
  // what they point to, and statuses belong to the queue until the completion.
  Status get(mc_get_item* items, std::size_t count, std::uint64_t deadline_ns,
             std::uint64_t user_data, std::uint64_t* request);
  Status exists(const mc_slice* keys, std::size_t count, mc_status* statuses,
                std::uint64_t deadline_ns, std::uint64_t user_data, std::uint64_t* request);
  // A local operation that is already done.
  void complete_now(mc_status status, std::size_t count, std::uint64_t user_data,
                    std::uint64_t* request);
  Status cancel(std::uint64_t request);
  // Makes the descriptor readable if anything is outstanding: its owner shall look. Any thread.
  void nudge();

 private:
  enum class Verb { kPut, kRemove, kGet, kExists };
  // kAsking: about what may be on another host.
  enum class Phase { kUnsent, kReserving, kPublishing, kRemoving, kAsking, kDone };
  struct Item {
    Phase phase = Phase::kUnsent;
    Verb verb = Verb::kPut;
    mc_get_item* get = nullptr;   // kGet
    mc_status* answer = nullptr;  // kExists
    shm::Word64* pin = nullptr;   // kGet: while it is asked for
    std::string key;
    std::uint64_t hash = 0;
    shm::PutItem fields{};
    std::vector<std::byte> buffer;  // the value, while it has no place in shared memory
    bool placed = false;            // in the pool, or in staging
    bool elsewhere = false;         // the pool has no room: offered to other hosts from staging
    const Memory* memory = nullptr;
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
    std::size_t item_count = 0;  // of the caller's; items are those that were not done at once
    std::vector<Item> items;
    std::size_t open_items = 0;
    mc_status first_failure = MC_OK;
  };

  explicit CompletionQueue(Client& client) : client_(client) {}
  Status begin(std::uint64_t deadline_ns);
  void finish_everything();
  void pump();
  void follow_connection();
  void advance(Operation& operation, Item& item);
  void send(Operation& operation, Item& item);
  Status place(Item& item, const mc_slice* pieces, std::size_t piece_count);
  bool offer_elsewhere(Item& item, mc_status status);
  void on_reserved(Operation& operation, Item& item);
  void on_published(Operation& operation, Item& item);
  void ask(Operation& operation, Item& item);
  void on_answered(Operation& operation, Item& item);
  void settle(Operation& operation, Item& item, mc_status status);
  void expire(Operation& operation, mc_status status);
  std::size_t take_ready(mc_completion* completions, std::size_t capacity);
  void add_ready(const mc_completion& completion);
  static Operation begun(std::size_t count, std::uint64_t deadline_ns, std::uint64_t user_data);
  std::uint64_t add(Operation operation, std::uint64_t* request);

  Client& client_;
  std::mutex mutex_;
  Channel* channel_ = nullptr;
  std::uint64_t watched_generation_ = 0;
  std::shared_ptr<Link> watched_link_;
  Fd event_;  // signalled for completions that need no agent
  Fd epoll_;  // event_ and the client's eventfd, edge-triggered, so that queues can share the
              // latter
  std::list<Operation> operations_;
  std::deque<mc_completion> ready_;
  std::uint64_t next_request_ = 1;
  std::atomic<std::uint64_t> outstanding_{0};  // operations_.size(), for nudge()
};

}  // namespace mc::client
