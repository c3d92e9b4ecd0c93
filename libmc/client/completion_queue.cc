// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/completion_queue.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/clock.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/reading.h"
#include "libmc/client/remote.h"
#include "shm/pins.h"

namespace mc::client {

namespace {

constexpr std::uint64_t kWaitSliceNs = 20000000;
constexpr std::uint64_t kCancelTimeoutNs = 5000000000;

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Client& client) {
  auto queue = std::unique_ptr<CompletionQueue>(new CompletionQueue(client));
  auto event = make_eventfd();
  if (!event) return fail(event.error());
  queue->event_ = std::move(*event);
  queue->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!queue->epoll_) return fail(MC_NO_MEMORY, errno_text("create an epoll", errno));
  watch(queue->epoll_.get(), queue->event_.get());
  {
    const MutexLock lock(queue->mutex_);
    queue->channel_ = client.lease_channel();
    if (queue->channel_ == nullptr) {
      return fail(MC_BUSY, "all channels are in use; open the client with a larger channel_count");
    }
    if (Status status = queue->begin(now_ns() + client.default_timeout_ns()); !status.ok()) {
      return fail(status);
    }
    // Allocate staging now, so that no submission waits for it. A submission without staging keeps
    // a private copy of the value.
    if (queue->channel_->memory().isolated) {
      static_cast<void>(client.staging(now_ns() + client.default_timeout_ns()).has_value());
    }
  }
  client.add_queue(queue.get());
  return queue;
}

CompletionQueue::~CompletionQueue() {
  if (channel_ == nullptr) return;
  if (!client_.inherited_by_fork()) finish_everything();
  client_.forget_queue(this);
  const MutexLock lock(mutex_);
  for (Operation& operation : operations_) {
    for (Item& item : operation.items) {
      if (item.ticket.valid()) channel_->forget(item.ticket);
    }
  }
  operations_.clear();
  client_.return_channel(channel_);
}

// Cancels outstanding requests and waits for the end of each, as long as the agent must answer.
void CompletionQueue::finish_everything() {
  std::vector<std::uint64_t> outstanding;
  {
    const MutexLock lock(mutex_);
    for (const Operation& operation : operations_) outstanding.push_back(operation.request);
  }
  for (const std::uint64_t request : outstanding) static_cast<void>(cancel(request).ok());
  const std::uint64_t until_ns = now_ns() + kCancelTimeoutNs;
  mc_completion dropped[16];
  for (;;) {
    poll(dropped, 16);
    {
      const MutexLock lock(mutex_);
      if (operations_.empty()) return;
    }
    const std::uint64_t now = now_ns();
    if (now >= until_ns || !client_.lost().ok()) return;
    wait_readable(epoll_.get(), std::min(kWaitSliceNs, until_ns - now));
  }
}

// Follows the client to the current connection. Errors: as Channel::join().
Status CompletionQueue::begin(std::uint64_t deadline_ns) {
  if (client_.inherited_by_fork()) return Status(MC_FORKED);
  if (Status status = client_.lost(); !status.ok()) return status;
  if (Status status = channel_->join(deadline_ns); !status.ok()) return status;
  if (watched_generation_ != channel_->generation()) follow_connection();
  return {};
}

void CompletionQueue::follow_connection() {
  const Client::Current now = client_.current();
  if (watched_link_ == now.connection.link) return;
  if (watched_link_) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_link_->client_event.get(), nullptr);
  }
  watched_link_ = now.connection.link;
  watched_generation_ = now.generation;
  watch(epoll_.get(), watched_link_->client_event.get());
}

// ---- Waiting ------------------------------------------------------------------------------------

int CompletionQueue::fd() { return epoll_.get(); }

// Runs without the lock, because a caller of poll() may hold the lock while it waits for the
// client.
void CompletionQueue::nudge() {
  if (outstanding_.load(std::memory_order_relaxed) > 0) signal_eventfd(event_.get());
}

std::size_t CompletionQueue::poll(mc_completion* completions, std::size_t capacity) {
  const MutexLock lock(mutex_);
  // Drain the events before the look at the completions. An arrival after the drain makes the
  // descriptor readable again.
  epoll_event events[4];
  while (::epoll_wait(epoll_.get(), events, 4, 0) == 4) {
  }
  pump();
  const std::size_t count = take_ready(completions, capacity);
  if (!ready_.empty()) signal_eventfd(event_.get());
  return count;
}

std::size_t CompletionQueue::wait(mc_completion* completions, std::size_t capacity,
                                  std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    if (const std::size_t count = poll(completions, capacity)) return count;
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return 0;
    wait_readable(epoll_.get(), std::min(kWaitSliceNs, deadline_ns - now));
  }
}

std::size_t CompletionQueue::take_ready(mc_completion* completions, std::size_t capacity) {
  std::size_t count = 0;
  for (; count < capacity && !ready_.empty(); ++count) {
    completions[count] = ready_.front();
    ready_.pop_front();
  }
  return count;
}

void CompletionQueue::add_ready(const mc_completion& completion) {
  ready_.push_back(completion);
  signal_eventfd(event_.get());
}

// Takes in the agent's answers and sends waiting requests.
void CompletionQueue::pump() {
  const std::uint64_t now = now_ns();
  const bool connected = begin(now).ok();
  const bool lost = !client_.lost().ok();
  for (bool again = true; again;) {
    if (connected) channel_->reap();
    for (auto it = operations_.begin(); it != operations_.end();) {
      Operation& operation = *it;
      // Without a connection the pool may be another session's by now.
      bool over = (connected || !operation.puts) && go_on(operation);
      const bool late = now > operation.deadline_ns + Channel::kGraceNs;
      if (!over && (lost || late)) {
        expire(operation, lost ? MC_SESSION_LOST : MC_TIMEOUT);
        over = true;
      }
      if (!over) {
        ++it;
        continue;
      }
      const mc_status status =
          operation.puts ? operation.puts->batch.outcome().code() : operation.first_failure;
      add_ready({operation.user_data, operation.request, status,
                 static_cast<std::uint32_t>(operation.item_count)});
      it = operations_.erase(it);
      outstanding_.fetch_sub(1, std::memory_order_relaxed);
    }
    again = false;
    if (connected && channel_->anything_in_flight()) {
      channel_->arm_eventfd();
      // Answers that came before the bell was armed ring no bell, so look once more.
      channel_->reap();
      for (const Operation& operation : operations_) again |= answered(operation);
    }
  }
}

// Sends the operation's requests as far as the channel has room, and takes in the answers. True: the
// operation is over.
bool CompletionQueue::go_on(Operation& operation) {
  if (operation.puts) return operation.puts->batch.step() == PutBatch::Wants::kNothing;
  for (Item& item : operation.items) {
    if (item.done) continue;
    if (item.ticket.valid()) {
      if (channel_->done(item.ticket)) on_answered(operation, item);
    } else if (operation.cancelled) {
      settle(operation, item, MC_CANCELLED);
    } else {
      ask(operation, item);
    }
  }
  return operation.open_items == 0;
}

bool CompletionQueue::answered(const Operation& operation) const {
  if (operation.puts) return operation.puts->batch.answered();
  for (const Item& item : operation.items) {
    if (item.ticket.valid() && channel_->done(item.ticket)) return true;
  }
  return false;
}

void CompletionQueue::expire(Operation& operation, mc_status status) {
  if (operation.puts) return operation.puts->batch.give_up(Status(status));
  for (Item& item : operation.items) {
    if (item.done) continue;
    if (item.ticket.valid()) {
      if (item.pin != nullptr) {
        const std::uint32_t slot = channel_->slot_of(item.pin);
        channel_->free_pins_after(item.ticket, &slot, 1);
      }
      channel_->forget(item.ticket);
    }
    item.ticket = {};
    if (item.answer != nullptr) *item.answer = status;
    settle(operation, item, status);
  }
}

void CompletionQueue::settle(Operation& operation, Item& item, mc_status status) {
  item.done = true;
  if (status != MC_OK && operation.first_failure == MC_OK) operation.first_failure = status;
  --operation.open_items;
}

// ---- Requests -----------------------------------------------------------------------------------

CompletionQueue::Operation CompletionQueue::begun(std::size_t count, std::uint64_t deadline_ns,
                                                  std::uint64_t user_data) {
  Operation operation;
  operation.user_data = user_data;
  operation.deadline_ns = deadline_ns;
  operation.item_count = count;
  return operation;
}

std::uint64_t CompletionQueue::add(Operation operation, std::uint64_t* request) {
  operation.request = next_request_++;
  operation.open_items = operation.items.size();
  if (request != nullptr) *request = operation.request;
  operations_.push_back(std::move(operation));
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  return operations_.back().request;
}

CompletionQueue::Puts::Puts(Client& client, Channel& channel, const mc_put_item* from,
                            std::size_t count, const PutRules& with, const Fd& bell)
    : items(from, from + count),
      rules(with),
      batch(client, channel, items.data(), count, rules, PutBatch::Mode::kPutLater, &bell) {
  std::size_t bytes = rules.parent.size;
  for (const mc_put_item& item : items) bytes += item.key.size + item.parent.size;
  texts.reserve(bytes);
  rules.parent = keep(rules.parent);
  for (mc_put_item& item : items) {
    item.key = keep(item.key);
    item.parent = keep(item.parent);
  }
}

mc_slice CompletionQueue::Puts::keep(mc_slice text) {
  if (text.size == 0) return {};
  const auto* const from = static_cast<const char*>(text.data);
  const std::size_t at = texts.size();
  texts.insert(texts.end(), from, from + text.size);
  return {texts.data() + at, text.size};
}

Status CompletionQueue::put(const mc_put_item* items, std::size_t count, const PutRules& rules,
                            std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(rules.deadline_ns); !status.ok()) return status;
  channel_->reap();
  Operation operation = begun(count, rules.deadline_ns, user_data);
  operation.puts = std::make_unique<Puts>(client_, *channel_, items, count, rules, event_);
  PutBatch& batch = operation.puts->batch;
  if (rules.stream != nullptr) {
    begin_copies(batch, *channel_);
  } else {
    static_cast<void>(batch.step());
    batch.keep_values();
  }
  add(std::move(operation), request);
  pump();
  return {};
}

Status CompletionQueue::remove(const mc_slice* keys, std::size_t count, std::uint64_t deadline_ns,
                               std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  operation.op = shm::Op::kRemove;
  operation.items.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    operation.items[i].key.assign(static_cast<const char*>(keys[i].data), keys[i].size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

Status CompletionQueue::get(mc_get_item* items, std::size_t count, std::uint64_t deadline_ns,
                            std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  operation.op = shm::Op::kFetch;
  for (std::size_t i = 0; i < count; ++i) {
    if (items[i].status != MC_NOT_FOUND) {
      if (operation.first_failure == MC_OK) operation.first_failure = items[i].status;
      continue;
    }
    Item& item = operation.items.emplace_back();
    item.get = &items[i];
    item.key.assign(static_cast<const char*>(items[i].key.data), items[i].key.size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

Status CompletionQueue::exists(const mc_slice* keys, std::size_t count, mc_status* statuses,
                               std::uint64_t deadline_ns, std::uint64_t user_data,
                               std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  operation.op = shm::Op::kExists;
  for (std::size_t i = 0; i < count; ++i) {
    if (statuses[i] == MC_OK) continue;
    Item& item = operation.items.emplace_back();
    item.answer = &statuses[i];
    item.key.assign(static_cast<const char*>(keys[i].data), keys[i].size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

void CompletionQueue::ask(Operation& operation, Item& item) {
  const bool get = operation.op == shm::Op::kFetch;
  std::uint32_t slot = 0;
  if (get) {
    item.pin = channel_->free_pin();
    if (item.pin == nullptr) return;  // questions in flight hold all pins; retry in the next pump()
    item.memory = channel_->shared_memory();
    item.pin->store_relaxed(shm::kPinWanted);
    slot = channel_->slot_of(item.pin);
  }
  const mc_slice key{item.key.data(), item.key.size()};
  const auto ticket =
      ask_about(*channel_, operation.op, &key, 1, get ? &slot : nullptr, operation.deadline_ns);
  if (ticket) {
    item.ticket = *ticket;
  } else if (get) {
    shm::clear_pin(*std::exchange(item.pin, nullptr));
  }
}

void CompletionQueue::on_answered(Operation& operation, Item& item) {
  const shm::ItemResult result = channel_->item_result(item.ticket, 0);
  const auto status = static_cast<mc_status>(result.status);
  channel_->finish(std::exchange(item.ticket, {}));
  if (operation.op == shm::Op::kRemove) return settle(operation, item, status);
  if (operation.op == shm::Op::kExists) {
    *item.answer = status;
    // As mc_exists_batch(): the statuses alone tell.
    return settle(operation, item, MC_OK);
  }
  mc_get_item& get = *item.get;
  const FetchedObject fetched = take_fetched(*channel_, std::exchange(item.pin, nullptr), result);
  get.status = fetched.status == MC_OK ? read_fetched(*channel_, fetched, get.pieces,
                                                      get.piece_count, get.offset, &get.length)
                                       : fetched.status;
  settle(operation, item, get.status);
}

void CompletionQueue::complete_now(mc_status status, std::size_t count, std::uint64_t user_data,
                                   std::uint64_t* request) {
  const MutexLock lock(mutex_);
  const std::uint64_t id = next_request_++;
  if (request != nullptr) *request = id;
  add_ready({user_data, id, status, static_cast<std::uint32_t>(count)});
}

Status CompletionQueue::cancel(std::uint64_t request) {
  const MutexLock lock(mutex_);
  pump();
  for (Operation& operation : operations_) {
    if (operation.request != request) continue;
    operation.cancelled = true;
    std::vector<Channel::Ticket> in_flight;
    if (operation.puts) {
      operation.puts->batch.cancel(MC_CANCELLED);
      in_flight = operation.puts->batch.in_flight();
    }
    for (const Item& item : operation.items) {
      if (item.ticket.valid()) in_flight.push_back(item.ticket);
    }
    for (const Channel::Ticket each : in_flight) {
      auto ticket = channel_->prepare(0);
      if (!ticket) return ticket.error();
      channel_->submit(*ticket, shm::Op::kCancel, 0, 0, now_ns() + kCancelTimeoutNs,
                       channel_->request_id(each));
      channel_->forget(*ticket);
    }
    pump();
    return {};
  }
  return {MC_NOT_FOUND, "the request is complete already"};
}

}  // namespace mc::client
